// SPDX-License-Identifier: GPL-2.0-only
// Makes a file of an ext4 and removes it.
#include "ext4_disk.h"
#include "workload.h"

void workload_setup(void)
{
	mount_ext4();
}

void workload(void)
{
	sys1(SYS_close, sys2(SYS_creat, EXT4_FOLDER "/created", 0600));
	sys1(SYS_unlink, EXT4_FOLDER "/created");
}
