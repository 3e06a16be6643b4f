// SPDX-License-Identifier: GPL-2.0-only
// Writes to a mapped file, and gives the page back: a page fault that makes a page of the page cache dirty.
#include "mapped_file.h"
#include "workload.h"

static volatile char *page;

void workload_setup(void)
{
	page = mapped_file(MAP_SHARED);
}

void workload(void)
{
	*page = 1;
	sys3(SYS_madvise, page, PAGE, MADV_DONTNEED);
}
