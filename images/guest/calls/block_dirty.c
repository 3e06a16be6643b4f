// SPDX-License-Identifier: GPL-2.0-only
// Writes a block of a disk through the page cache, and has it written back.
#include "memory_disk.h"
#include "workload.h"

static char bytes[BLOCK];
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, EMPTY_DISK, O_RDWR);
}

void workload(void)
{
	sys5(SYS_pwrite64, fd, bytes, BLOCK, 0, 0);
	sys1(SYS_fdatasync, fd);
}
