// SPDX-License-Identifier: GPL-2.0-only
// Connects to a TCP port of IPv6 that nobody listens at: the answer is a reset.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in6 address;
static long fd;

void workload_setup(void)
{
	sys1(SYS_close, socket_on_loopback6(SOCK_STREAM, &address));
	fd = sys3(SYS_socket, AF_INET6, SOCK_STREAM, 0);
}

void workload(void)
{
	sys3(SYS_connect, fd, &address, sizeof(address));
}
