// SPDX-License-Identifier: GPL-2.0-only
// Executes a file that is no program: the process stays the one that the probe counts for.
#include "workload.h"

#define FILE "/tmp/lab-exec"

void workload_setup(void)
{
	long fd = sys2(SYS_creat, FILE, 0700);

	write_all((int)fd, "text", 4);
	sys1(SYS_close, fd);
}

void workload(void)
{
	sys3(SYS_execve, FILE, 0, 0);
}
