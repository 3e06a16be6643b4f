// SPDX-License-Identifier: GPL-2.0-only
// Reads a privately mapped file, writes to it, and gives the page back: two page faults, of which one copies the page.
#include "mapped_file.h"
#include "workload.h"

static volatile char *page;

void workload_setup(void)
{
	page = mapped_file(MAP_PRIVATE);
}

void workload(void)
{
	(void)*page;
	*page = 1;
	sys3(SYS_madvise, page, PAGE, MADV_DONTNEED);
}
