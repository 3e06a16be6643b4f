// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte to a UDP port that nobody has: it is dropped, and the socket gets an error.
#include "sockets.h"
#include "workload.h"

static long fd;
static char byte;

void workload_setup(void)
{
	struct sockaddr_in address;

	sys1(SYS_close, socket_on_loopback(SOCK_DGRAM, &address));
	fd = sys3(SYS_socket, AF_INET, SOCK_DGRAM, 0);
	sys3(SYS_connect, fd, &address, sizeof(address));
}

void workload(void)
{
	int error;
	unsigned int size = sizeof(error);

	sys6(SYS_sendto, fd, &byte, 1, 0, 0, 0);
	sys5(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &size);	// takes it away
}
