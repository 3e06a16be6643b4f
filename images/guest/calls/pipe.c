// SPDX-License-Identifier: GPL-2.0-only
// Writes a byte into a pipe and reads it.
#include "workload.h"

static int ends[2];
static char byte;

void workload_setup(void)
{
	sys2(SYS_pipe2, ends, 0);
}

void workload(void)
{
	sys3(SYS_write, ends[1], &byte, 1);
	sys3(SYS_read, ends[0], &byte, 1);
}
