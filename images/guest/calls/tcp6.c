// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte over a TCP connection of the loopback device by IPv6 and receives it.
#include "sockets.h"
#include "workload.h"

static long from, to;
static char byte;

void workload_setup(void)
{
	struct sockaddr_in6 address;
	long listener = listen_on_loopback6(&address);

	from = sys3(SYS_socket, AF_INET6, SOCK_STREAM, 0);
	sys3(SYS_connect, from, &address, sizeof(address));
	to = sys4(SYS_accept4, listener, 0, 0, 0);
}

void workload(void)
{
	sys6(SYS_sendto, from, &byte, 1, 0, 0, 0);
	sys6(SYS_recvfrom, to, &byte, 1, 0, 0, 0);
}
