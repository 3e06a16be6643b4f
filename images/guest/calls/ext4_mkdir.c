// SPDX-License-Identifier: GPL-2.0-only
// Makes a folder of an ext4 and removes it.
#include "ext4_disk.h"
#include "workload.h"

void workload_setup(void)
{
	mount_ext4();
}

void workload(void)
{
	sys2(SYS_mkdir, EXT4_FOLDER "/folder", 0700);
	sys1(SYS_rmdir, EXT4_FOLDER "/folder");
}
