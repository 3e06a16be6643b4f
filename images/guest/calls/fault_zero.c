// SPDX-License-Identifier: GPL-2.0-only
// Reads new memory, and gives it back: a page fault that maps the page of zeros.
#include "workload.h"
#include <linux/mman.h>

enum { PAGE = 4096 };

static volatile char *page;

void workload_setup(void)
{
	page = map_memory(-1, PAGE, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
}

void workload(void)
{
	(void)*page;
	sys3(SYS_madvise, page, PAGE, MADV_DONTNEED);
}
