// SPDX-License-Identifier: GPL-2.0-only
// Has a page written to the swap device, and reads it back by a page fault.
#include "memory_disk.h"
#include "workload.h"

enum { ADVICE_PAGEOUT = 21, SWAP_PAGES = 4096, SIGNATURE_AT = BLOCK - 10 };

static volatile char *page;

void workload_setup(void)
{
	static char header[BLOCK];
	struct memory_disk disk = make_memory_disk("lab-swap");

	if (disk.is_new) {
		long fd = sys2(SYS_open, disk.device, O_WRONLY);

		header[1024] = 1;			// the version, then the last page
		header[1028] = (char)(SWAP_PAGES - 1);
		header[1029] = (char)((SWAP_PAGES - 1) >> 8);
		memcpy(header + SIGNATURE_AT, "SWAPSPACE2", 10);
		write_all((int)fd, header, BLOCK);
		sys1(SYS_fsync, fd);
		sys1(SYS_close, fd);
		sys2(SYS_swapon, disk.device, 0);
	}
	page = map_memory(-1, BLOCK, 0, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
	*page = 1;
}

void workload(void)
{
	sys3(SYS_madvise, page, BLOCK, ADVICE_PAGEOUT);
	*page = 1;
}
