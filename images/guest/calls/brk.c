// SPDX-License-Identifier: GPL-2.0-only
// Grows the heap by a page, and shrinks it again.
#include "workload.h"

static long end;

void workload_setup(void)
{
	end = sys1(SYS_brk, 0);
}

void workload(void)
{
	sys1(SYS_brk, end + 4096);
	sys1(SYS_brk, end);
}
