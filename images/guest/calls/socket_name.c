// SPDX-License-Identifier: GPL-2.0-only
// Asks for the addresses of both ends of a connected UDP socket.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in address;
static long fd;

void workload_setup(void)
{
	fd = socket_on_loopback(SOCK_DGRAM, &address);
	sys3(SYS_connect, fd, &address, sizeof(address));
}

void workload(void)
{
	unsigned int size = sizeof(address);

	sys3(SYS_getsockname, fd, &address, &size);
	sys3(SYS_getpeername, fd, &address, &size);
}
