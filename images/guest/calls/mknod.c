// SPDX-License-Identifier: GPL-2.0-only
// Makes a file of a tmpfs by mknod, and removes it.
#include "tmpfs.h"
#include "workload.h"

enum { REGULAR_FILE = 0100600 };

void workload_setup(void)
{
	mount_tmpfs();
}

void workload(void)
{
	sys3(SYS_mknod, TMPFS_FOLDER "/made", REGULAR_FILE, 0);
	sys1(SYS_unlink, TMPFS_FOLDER "/made");
}
