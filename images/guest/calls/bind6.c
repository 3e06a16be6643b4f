// SPDX-License-Identifier: GPL-2.0-only
// Makes a TCP socket of IPv6, binds it to a port of the loopback device, and closes it.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in6 address;

void workload_setup(void)
{
	set_up_loopback();
	address = loopback6_address();
}

void workload(void)
{
	long fd = sys3(SYS_socket, AF_INET6, SOCK_STREAM, 0);

	sys3(SYS_bind, fd, &address, sizeof(address));
	sys1(SYS_close, fd);
}
