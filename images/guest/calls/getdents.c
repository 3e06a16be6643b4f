// SPDX-License-Identifier: GPL-2.0-only
// Reads the entries of a folder.
#include "workload.h"

static char entries[4096];
static long fd;

void workload_setup(void)
{
	sys2(SYS_mkdir, "/tmp/lab-entries", 0700);
	sys2(SYS_mkdir, "/tmp/lab-entries/one", 0700);
	fd = sys2(SYS_open, "/tmp/lab-entries", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_lseek, fd, 0, 0);
	sys3(SYS_getdents64, fd, entries, sizeof(entries));
}
