// SPDX-License-Identifier: GPL-2.0-only
// Reads a register of a stopped process by ptrace().
#include "traced_child.h"
#include "workload.h"

static long pid;

void workload_setup(void)
{
	pid = traced_child();
}

void workload(void)
{
	long value;

	sys4(SYS_ptrace, PTRACE_PEEKUSR, pid, 0, &value);
}
