// SPDX-License-Identifier: GPL-2.0-only
// Reads 64 bytes of /dev/zero.
#include "workload.h"

static char to[64];
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, "/dev/zero", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_read, fd, to, sizeof(to));
}
