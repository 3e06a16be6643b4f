// SPDX-License-Identifier: GPL-2.0-only
// Gives a file of a tmpfs a second name, and takes it away.
#include "tmpfs.h"
#include "workload.h"

void workload_setup(void)
{
	mount_tmpfs();
	sys1(SYS_close, sys2(SYS_creat, TMPFS_FOLDER "/linked", 0600));
}

void workload(void)
{
	sys2(SYS_link, TMPFS_FOLDER "/linked", TMPFS_FOLDER "/second");
	sys1(SYS_unlink, TMPFS_FOLDER "/second");
}
