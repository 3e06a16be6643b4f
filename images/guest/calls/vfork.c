// SPDX-License-Identifier: GPL-2.0-only
// Makes a process by vfork(), which ends, and waits for it.
#include "workload.h"

void workload(void)
{
	// Without calls, which would write to the stack that both have.
	long pid = sys6(SYS_vfork, 0, 0, 0, 0, 0, 0);

	if (pid == 0)
		sys6(SYS_exit_group, 0, 0, 0, 0, 0, 0);
	sys4(SYS_wait4, pid, 0, 0, 0);
}
