// SPDX-License-Identifier: GPL-2.0-only
// Reads 64 bytes of a file, from the page cache.
#include "workload.h"

static char bytes[64];
static long fd;

void workload_setup(void)
{
	fd = sys3(SYS_open, "/tmp/lab-read", O_RDWR | O_CREAT, 0600);
	write_all((int)fd, bytes, sizeof(bytes));
}

void workload(void)
{
	sys3(SYS_lseek, fd, 0, 0);
	sys3(SYS_read, fd, bytes, sizeof(bytes));
}
