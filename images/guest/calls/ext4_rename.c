// SPDX-License-Identifier: GPL-2.0-only
// Renames a file of an ext4, and back.
#include "ext4_disk.h"
#include "workload.h"

void workload_setup(void)
{
	mount_ext4();
	sys1(SYS_close, sys2(SYS_creat, EXT4_FOLDER "/old", 0600));
}

void workload(void)
{
	sys2(SYS_rename, EXT4_FOLDER "/old", EXT4_FOLDER "/new");
	sys2(SYS_rename, EXT4_FOLDER "/new", EXT4_FOLDER "/old");
}
