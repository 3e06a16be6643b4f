// SPDX-License-Identifier: GPL-2.0-only
// Writes 64 bytes to /dev/null.
#include "workload.h"

static char from[64];
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, "/dev/null", O_WRONLY);
}

void workload(void)
{
	sys3(SYS_write, fd, from, sizeof(from));
}
