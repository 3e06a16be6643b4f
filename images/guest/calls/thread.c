// SPDX-License-Identifier: GPL-2.0-only
// Makes a thread, which ends before the call returns. A probe counts what the threads of this process do, and no other
// process: what a function that ends tasks costs is seen here, and not with fork.c.
#include "workload.h"
#include <linux/sched.h>

enum { SHARED = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD };

void workload(void)
{
	// Without calls, which would write to the stack that both have: CLONE_VFORK lets one wait for the other.
	if (sys6(SYS_clone, SHARED | CLONE_VFORK, 0, 0, 0, 0, 0) == 0)
		sys6(SYS_exit, 0, 0, 0, 0, 0, 0);
}
