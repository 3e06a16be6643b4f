// SPDX-License-Identifier: GPL-2.0-only
// Reads 64 bytes of a file of an ext4, from the page cache.
#include "ext4_disk.h"
#include "workload.h"

static char bytes[64];
static long fd;

void workload_setup(void)
{
	mount_ext4();
	fd = sys3(SYS_open, EXT4_FOLDER "/read", O_RDWR | O_CREAT, 0600);
	write_all((int)fd, bytes, sizeof(bytes));
}

void workload(void)
{
	sys5(SYS_pread64, fd, bytes, sizeof(bytes), 0, 0);
}
