// SPDX-License-Identifier: GPL-2.0-only
// Maps a page and unmaps it, untouched.
#include "workload.h"

enum { PAGE = 4096 };

void workload(void)
{
	sys2(SYS_munmap, map_memory(-1, PAGE, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS), PAGE);
}
