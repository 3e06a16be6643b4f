// SPDX-License-Identifier: GPL-2.0-only
// Opens a descriptor of its own process, sends signal 0 by it, and closes it.
#include "workload.h"

static long pid;

void workload_setup(void)
{
	pid = sys0(SYS_getpid);
}

void workload(void)
{
	long fd = sys2(SYS_pidfd_open, pid, 0);

	sys4(SYS_pidfd_send_signal, fd, 0, 0, 0);
	sys1(SYS_close, fd);
}
