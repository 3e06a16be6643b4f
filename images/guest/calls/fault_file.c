// SPDX-License-Identifier: GPL-2.0-only
// Reads a mapped file, and gives the page back: a page fault that maps a page of the page cache.
#include "mapped_file.h"
#include "workload.h"

static volatile char *page;

void workload_setup(void)
{
	page = mapped_file(MAP_SHARED);
}

void workload(void)
{
	(void)*page;
	sys3(SYS_madvise, page, PAGE, MADV_DONTNEED);
}
