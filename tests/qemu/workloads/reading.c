// SPDX-License-Identifier: GPL-2.0-only
// Reads one byte of nothing in every call.
#include "workload.h"

static int file;
static char byte;

void workload_setup(void)
{
	file = (int)sys2(SYS_open, "/dev/zero", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_read, file, &byte, 1);
}
