// SPDX-License-Identifier: GPL-2.0-only
// Makes a page read-only, and writable again.
#include "workload.h"

enum { PAGE = 4096 };

static void *page;

void workload_setup(void)
{
	page = map_memory(-1, PAGE, 0, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS);
}

void workload(void)
{
	sys3(SYS_mprotect, page, PAGE, PROT_READ);
	sys3(SYS_mprotect, page, PAGE, PROT_READ | PROT_WRITE);
}
