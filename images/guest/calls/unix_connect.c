// SPDX-License-Identifier: GPL-2.0-only
// Connects to a Unix socket, accepts the connection, and closes both ends.
#include "sockets.h"
#include "workload.h"
#include <linux/un.h>

// A name without a file: its first byte is zero.
static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = "\0lab-unix-connect"};
static long listener;

void workload_setup(void)
{
	listener = sys3(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
	sys3(SYS_bind, listener, &address, sizeof(address));
	sys2(SYS_listen, listener, 16);
}

void workload(void)
{
	long from = sys3(SYS_socket, AF_UNIX, SOCK_STREAM, 0);

	sys3(SYS_connect, from, &address, sizeof(address));
	long to = sys4(SYS_accept4, listener, 0, 0, 0);

	sys1(SYS_close, from);
	sys1(SYS_close, to);
}
