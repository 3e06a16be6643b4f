// SPDX-License-Identifier: GPL-2.0-only
// Ends one direction of a TCP connection by shutdown(), which the other end reads, and the other one by a reset.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in address;
static long listener;
static char byte;

void workload_setup(void)
{
	listener = listen_on_loopback(&address);
}

void workload(void)
{
	long from = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);

	sys3(SYS_connect, from, &address, sizeof(address));
	long to = sys4(SYS_accept4, listener, 0, 0, 0);

	sys2(SYS_shutdown, from, SHUT_WR);
	sys6(SYS_recvfrom, to, &byte, 1, 0, 0, 0);
	reset_on_close(to);
	sys1(SYS_close, to);
	sys1(SYS_close, from);
}
