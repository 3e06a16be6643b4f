// SPDX-License-Identifier: GPL-2.0-only
// Sends a signal to its own thread by tgkill(), as raise() of a C library does; its handler returns.
#include "handled_signal.h"
#include "workload.h"

static long pid, tid;

void workload_setup(void)
{
	handle_signal(SIGUSR1);
	pid = sys0(SYS_getpid);
	tid = sys0(SYS_gettid);
}

void workload(void)
{
	sys3(SYS_tgkill, pid, tid, SIGUSR1);
}
