// SPDX-License-Identifier: GPL-2.0-only
// Connects to a TCP socket of the loopback device, accepts the connection, and ends it by a reset.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in address;
static long listener;

void workload_setup(void)
{
	listener = listen_on_loopback(&address);
}

void workload(void)
{
	long from = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);

	sys3(SYS_connect, from, &address, sizeof(address));
	reset_on_close(from);
	long to = sys4(SYS_accept4, listener, 0, 0, 0);

	sys1(SYS_close, from);
	sys1(SYS_close, to);
}
