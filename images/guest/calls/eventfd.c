// SPDX-License-Identifier: GPL-2.0-only
// Adds to an eventfd and reads it.
#include "workload.h"

static long fd;
static uint64_t number = 1;

void workload_setup(void)
{
	fd = sys2(SYS_eventfd2, 0, 0);
}

void workload(void)
{
	sys3(SYS_write, fd, &number, sizeof(number));
	sys3(SYS_read, fd, &number, sizeof(number));
}
