// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte over a pair of Unix datagram sockets and receives it.
#include "sockets.h"
#include "workload.h"

static int ends[2];
static char byte;

void workload_setup(void)
{
	sys4(SYS_socketpair, AF_UNIX, SOCK_DGRAM, 0, ends);
}

void workload(void)
{
	sys6(SYS_sendto, ends[0], &byte, 1, 0, 0, 0);
	sys6(SYS_recvfrom, ends[1], &byte, 1, 0, 0, 0);
}
