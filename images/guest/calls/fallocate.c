// SPDX-License-Identifier: GPL-2.0-only
// Allocates a page of a file of a tmpfs, and frees it.
#include "tmpfs.h"
#include "workload.h"

enum { PAGE = 4096 };

static long fd;

void workload_setup(void)
{
	mount_tmpfs();
	fd = sys3(SYS_open, TMPFS_FOLDER "/allocated", O_RDWR | O_CREAT | O_TRUNC, 0600);
}

void workload(void)
{
#ifdef __i386__
	sys6(SYS_fallocate, fd, 0, 0, 0, PAGE, 0);
#else
	sys4(SYS_fallocate, fd, 0, 0, PAGE);
#endif
	sys2(SYS_ftruncate, fd, 0);
}
