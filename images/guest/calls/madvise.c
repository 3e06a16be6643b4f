// SPDX-License-Identifier: GPL-2.0-only
// Writes to a page and gives it back by madvise(): one page fault.
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
	*page = 1;
	sys3(SYS_madvise, page, PAGE, MADV_DONTNEED);
}
