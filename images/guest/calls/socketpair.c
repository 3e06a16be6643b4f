// SPDX-License-Identifier: GPL-2.0-only
// Makes a pair of Unix sockets and closes both.
#include "sockets.h"
#include "workload.h"

void workload(void)
{
	int ends[2];

	sys4(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, ends);
	sys1(SYS_close, ends[0]);
	sys1(SYS_close, ends[1]);
}
