// SPDX-License-Identifier: GPL-2.0-only
// Makes a TCP socket, binds it to a port of the loopback device, and closes it.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in address;

void workload_setup(void)
{
	set_up_loopback();
	address = loopback_address();
}

void workload(void)
{
	long fd = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);

	sys3(SYS_bind, fd, &address, sizeof(address));
	sys1(SYS_close, fd);
}
