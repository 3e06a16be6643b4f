// SPDX-License-Identifier: GPL-2.0-only
// Changes the mode, the owner and the times of a file of a tmpfs.
#include "tmpfs.h"
#include "workload.h"

static long fd;

void workload_setup(void)
{
	mount_tmpfs();
	fd = sys3(SYS_open, TMPFS_FOLDER "/changed", O_RDWR | O_CREAT, 0600);
}

void workload(void)
{
	sys2(SYS_fchmod, fd, 0600);
	sys3(SYS_fchown, fd, 0, 0);
	sys4(SYS_utimensat, fd, 0, 0, 0);
}
