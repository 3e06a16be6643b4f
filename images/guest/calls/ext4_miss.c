// SPDX-License-Identifier: GPL-2.0-only
// Reads a block of a file of an ext4 that is not in the page cache.
#include "ext4_disk.h"
#include "file_advice.h"
#include "workload.h"

static char bytes[BLOCK];
static long fd;

void workload_setup(void)
{
	mount_ext4();
	fd = sys3(SYS_open, EXT4_FOLDER "/missed", O_RDWR | O_CREAT, 0600);
	write_all((int)fd, bytes, sizeof(bytes));
	sys1(SYS_fsync, fd);
}

void workload(void)
{
	advise(fd, ADVICE_DONTNEED);
	sys5(SYS_pread64, fd, bytes, BLOCK, 0, 0);
}
