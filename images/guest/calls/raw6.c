// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte over a raw socket of the loopback device by IPv6 to itself, and receives it.
#include "sockets.h"
#include "workload.h"

static long fd;
static char byte;

void workload_setup(void)
{
	struct sockaddr_in6 address = loopback6_address();

	set_up_loopback();
	fd = sys3(SYS_socket, AF_INET6, SOCK_RAW, EXPERIMENT);
	sys3(SYS_connect, fd, &address, sizeof(address));
}

void workload(void)
{
	sys6(SYS_sendto, fd, &byte, 1, 0, 0, 0);
	sys6(SYS_recvfrom, fd, &byte, 1, 0, 0, 0);
}
