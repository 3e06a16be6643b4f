// SPDX-License-Identifier: GPL-2.0-only
// Dirties a page of an ext4, and has all file systems written back.
#include "ext4_disk.h"
#include "workload.h"

static char bytes[64];
static long fd;

void workload_setup(void)
{
	mount_ext4();
	fd = sys3(SYS_open, EXT4_FOLDER "/dirty", O_RDWR | O_CREAT, 0600);
	write_all((int)fd, bytes, sizeof(bytes));
	sys1(SYS_fsync, fd);
}

void workload(void)
{
	sys5(SYS_pwrite64, fd, bytes, sizeof(bytes), 0, 0);
	sys0(SYS_sync);
}
