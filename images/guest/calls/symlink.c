// SPDX-License-Identifier: GPL-2.0-only
// Makes a symbolic link in a tmpfs, looks at it, follows it, and removes it.
#include "tmpfs.h"
#include "workload.h"

static char status[256];

void workload_setup(void)
{
	mount_tmpfs();
}

void workload(void)
{
	sys2(SYS_symlink, "/dev/null", TMPFS_FOLDER "/link");
	sys2(SYS_lstat, TMPFS_FOLDER "/link", status);
	sys2(SYS_stat, TMPFS_FOLDER "/link", status);
	sys1(SYS_unlink, TMPFS_FOLDER "/link");
}
