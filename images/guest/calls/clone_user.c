// SPDX-License-Identifier: GPL-2.0-only
// Makes a process in a user namespace and a process namespace of its own, which ends, and waits for it.
#include "workload.h"
#include <asm/signal.h>
#include <linux/sched.h>

void workload(void)
{
	long pid = sys6(SYS_clone, CLONE_NEWUSER | CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0, 0);

	if (pid == 0)
		sys1(SYS_exit_group, 0);
	sys4(SYS_wait4, pid, 0, 0, 0);
}
