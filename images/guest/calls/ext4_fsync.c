// SPDX-License-Identifier: GPL-2.0-only
// Makes a file of an ext4, has the journal committed with it, and removes it.
#include "ext4_disk.h"
#include "workload.h"

void workload_setup(void)
{
	mount_ext4();
}

void workload(void)
{
	long fd = sys2(SYS_creat, EXT4_FOLDER "/synced", 0600);

	sys1(SYS_fsync, fd);
	sys1(SYS_close, fd);
	sys1(SYS_unlink, EXT4_FOLDER "/synced");
}
