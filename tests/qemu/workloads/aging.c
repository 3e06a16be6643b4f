// SPDX-License-Identifier: GPL-2.0-only
// Opens a directory, reads it, and closes it. The directory is empty until the program has been copied into the guest a
// second time, as for the second cell of a guest, and has a hundred entries from then on.
#include "workload.h"

enum { ENTRIES = 100, INODE = 1 };

static const char seen[] = "/tmp/seen";
static char file[] = "/tmp/aging/00";

void workload_setup(void)
{
	long facts[64] = {0}, before = 0;
	int fd = (int)sys3(SYS_open, seen, O_RDWR | O_CREAT, 0600);

	sys2(SYS_mkdir, "/tmp/aging", 0700);
	sys2(SYS_stat, "/tmp/workload", facts);
	if (sys3(SYS_read, fd, &before, sizeof(before)) != sizeof(before))
		sys3(SYS_write, fd, &facts[INODE], sizeof(before));
	sys1(SYS_close, fd);
	for (int i = 0; before && before != facts[INODE] && i < ENTRIES; i++) {
		file[sizeof(file) - 3] = (char)('0' + i / 10);
		file[sizeof(file) - 2] = (char)('0' + i % 10);
		sys1(SYS_close, sys2(SYS_creat, file, 0600));
	}
}

void workload(void)
{
	static char entries[8192];
	long fd = sys3(SYS_open, "/tmp/aging", O_RDONLY, 0);

	sys3(SYS_getdents64, fd, entries, sizeof(entries));
	sys1(SYS_close, fd);
}
