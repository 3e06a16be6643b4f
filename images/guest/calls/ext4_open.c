// SPDX-License-Identifier: GPL-2.0-only
// Opens a file of an ext4 and closes it.
#include "ext4_disk.h"
#include "workload.h"

void workload_setup(void)
{
	mount_ext4();
	sys1(SYS_close, sys2(SYS_creat, EXT4_FOLDER "/opened", 0600));
}

void workload(void)
{
	sys1(SYS_close, sys2(SYS_open, EXT4_FOLDER "/opened", O_RDONLY));
}
