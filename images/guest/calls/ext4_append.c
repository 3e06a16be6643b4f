// SPDX-License-Identifier: GPL-2.0-only
// Writes a block to a new file of an ext4, and makes it empty again: what is new is not yet on the disk.
#include "ext4_disk.h"
#include "workload.h"

static char bytes[BLOCK];
static long fd;

void workload_setup(void)
{
	mount_ext4();
	fd = sys3(SYS_open, EXT4_FOLDER "/appended", O_RDWR | O_CREAT | O_TRUNC, 0600);
}

void workload(void)
{
	sys5(SYS_pwrite64, fd, bytes, BLOCK, 0, 0);
	sys2(SYS_ftruncate, fd, 0);
}
