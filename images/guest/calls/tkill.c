// SPDX-License-Identifier: GPL-2.0-only
// Sends a signal to its own thread by tkill(), whose handler returns.
#include "handled_signal.h"
#include "workload.h"

static long tid;

void workload_setup(void)
{
	handle_signal(SIGUSR1);
	tid = sys0(SYS_gettid);
}

void workload(void)
{
	sys2(SYS_tkill, tid, SIGUSR1);
}
