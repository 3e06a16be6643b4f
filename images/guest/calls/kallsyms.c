// SPDX-License-Identifier: GPL-2.0-only
// Reads the beginning of the kernel's list of symbols.
#include "workload.h"

static char lines[1024];
static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, "/proc/kallsyms", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_lseek, fd, 0, 0);
	sys3(SYS_read, fd, lines, sizeof(lines));
}
