// SPDX-License-Identifier: GPL-2.0-only
// Gets a process namespace for its children, and goes back to its own.
#include "workload.h"
#include <linux/sched.h>

static long fd;

void workload_setup(void)
{
	fd = sys2(SYS_open, "/proc/self/ns/pid", O_RDONLY);
}

void workload(void)
{
	sys1(SYS_unshare, CLONE_NEWPID);
	sys2(SYS_setns, fd, CLONE_NEWPID);
}
