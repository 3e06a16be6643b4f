// SPDX-License-Identifier: GPL-2.0-only
// Allows itself the first CPU.
#include "workload.h"

static const unsigned long mask = 1;

void workload(void)
{
	sys3(SYS_sched_setaffinity, 0, sizeof(mask), &mask);
}
