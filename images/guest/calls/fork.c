// SPDX-License-Identifier: GPL-2.0-only
// Makes a process, which ends, and waits for it.
#include "workload.h"

void workload(void)
{
	long pid = sys0(SYS_fork);

	if (pid == 0)
		sys1(SYS_exit_group, 0);
	sys4(SYS_wait4, pid, 0, 0, 0);
}
