// SPDX-License-Identifier: GPL-2.0-only
// Locks a page in memory and unlocks it.
#include "workload.h"

enum { PAGE = 4096 };

static volatile char *page;

void workload_setup(void)
{
	page = map_memory(-1, PAGE, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
	*page = 1;
}

void workload(void)
{
	sys2(SYS_mlock, page, PAGE);
	sys2(SYS_munlock, page, PAGE);
}
