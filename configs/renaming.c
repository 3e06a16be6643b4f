// SPDX-License-Identifier: GPL-2.0-only
// Renames its own thread in every call, as the kernel's samples/bpf/test_overhead and its bench rename-* do.
#include "workload.h"

static int file;

void workload_setup(void)
{
	file = (int)sys2(SYS_open, "/proc/self/comm", O_RDWR);
}

void workload(void)
{
	sys3(SYS_write, file, "test", 4);
}
