// SPDX-License-Identifier: GPL-2.0-only
// Has a file of a tmpfs written to its disk, of which there is none.
#include "tmpfs.h"
#include "workload.h"

static long fd;

void workload_setup(void)
{
	mount_tmpfs();
	fd = sys3(SYS_open, TMPFS_FOLDER "/synced", O_RDWR | O_CREAT, 0600);
}

void workload(void)
{
	sys1(SYS_fsync, fd);
	sys1(SYS_fdatasync, fd);
}
