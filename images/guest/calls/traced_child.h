// SPDX-License-Identifier: GPL-2.0-only
// A process that is stopped, traced, and killed when this one ends.
#ifndef TRACED_CHILD_H
#define TRACED_CHILD_H

#include "runtime.h"
#include <asm/signal.h>
#include <linux/prctl.h>
#include <linux/ptrace.h>

static inline long traced_child(void)
{
	long pid = sys0(SYS_fork);

	if (pid == 0) {
		sys2(SYS_prctl, PR_SET_PDEATHSIG, SIGKILL);
		sys4(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0);
		sys2(SYS_kill, sys0(SYS_getpid), SIGSTOP);
		for (;;)
			sys0(SYS_pause);
	}
	sys4(SYS_wait4, pid, 0, 0, 0);
	return pid;
}

#endif
