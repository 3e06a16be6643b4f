// SPDX-License-Identifier: GPL-2.0-only
// Sends itself a signal, whose handler returns.
#include "handled_signal.h"
#include "workload.h"

static long pid;

void workload_setup(void)
{
	handle_signal(SIGUSR1);
	pid = sys0(SYS_getpid);
}

void workload(void)
{
	sys2(SYS_kill, pid, SIGUSR1);
}
