// SPDX-License-Identifier: GPL-2.0-only
// Moves a page of memory to another address, and back.
#include "workload.h"
#include <linux/mman.h>

enum { PAGE = 4096 };

static volatile char *page, *to;

void workload_setup(void)
{
	page = map_memory(-1, 2 * PAGE, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
	*page = 1;
	to = page + PAGE;
	sys2(SYS_munmap, to, PAGE);
}

void workload(void)
{
	sys5(SYS_mremap, page, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	sys5(SYS_mremap, to, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, page);
}
