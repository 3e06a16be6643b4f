// SPDX-License-Identifier: GPL-2.0-only
// Reads a byte of nothing.
#include "workload.h"

static int fd;
static char byte;

void workload_setup(void)
{
	fd = (int)sys2(SYS_open, "/dev/zero", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_read, fd, &byte, 1);
}
