// SPDX-License-Identifier: GPL-2.0-only
// Reads a block of a disk without the page cache.
#include "memory_disk.h"
#include "workload.h"

static char bytes[BLOCK] __attribute__((aligned(BLOCK)));
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, EMPTY_DISK, O_RDONLY | OPEN_DIRECT);
}

void workload(void)
{
	sys5(SYS_pread64, fd, bytes, BLOCK, 0, 0);
}
