// SPDX-License-Identifier: GPL-2.0-only
// Maps a page, writes to it, and unmaps it: one page fault.
#include "workload.h"

enum { PAGE = 4096 };

void workload(void)
{
	volatile char *page = map_memory(-1, PAGE, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);

	*page = 1;
	sys2(SYS_munmap, page, PAGE);
}
