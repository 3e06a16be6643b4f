// SPDX-License-Identifier: GPL-2.0-only
// Makes a process and kills it.
#include "workload.h"
#include <asm/signal.h>

void workload(void)
{
	long pid = sys0(SYS_fork);

	if (pid == 0)
		for (;;)
			sys0(SYS_pause);
	sys2(SYS_kill, pid, SIGKILL);
	sys4(SYS_wait4, pid, 0, 0, 0);
}
