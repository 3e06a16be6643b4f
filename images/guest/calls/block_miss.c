// SPDX-License-Identifier: GPL-2.0-only
// Reads a block of a disk that is not in the page cache.
#include "file_advice.h"
#include "memory_disk.h"
#include "workload.h"

static char bytes[BLOCK];
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, EMPTY_DISK, O_RDONLY);
}

void workload(void)
{
	advise(fd, ADVICE_DONTNEED);
	sys5(SYS_pread64, fd, bytes, BLOCK, 0, 0);
}
