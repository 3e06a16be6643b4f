// SPDX-License-Identifier: GPL-2.0-only
// Writes 64 bytes to a file of a tmpfs.
#include "workload.h"

static char from[64];
static long fd;

void workload_setup(void)
{
	// Another process has mounted it if the folder is there.
	if (sys2(SYS_mkdir, "/tmp/lab-tmpfs", 0700) == 0)
		sys5(SYS_mount, "none", "/tmp/lab-tmpfs", "tmpfs", 0, 0);
	fd = sys3(SYS_open, "/tmp/lab-tmpfs/file", O_WRONLY | O_CREAT, 0600);
}

void workload(void)
{
	sys3(SYS_lseek, fd, 0, 0);
	sys3(SYS_write, fd, from, sizeof(from));
}
