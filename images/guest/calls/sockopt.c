// SPDX-License-Identifier: GPL-2.0-only
// Sets an option of a TCP socket, and asks for it.
#include "sockets.h"
#include "workload.h"
#include <linux/tcp.h>

static long fd;

void workload_setup(void)
{
	fd = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);
}

void workload(void)
{
	int is_on = 1;
	unsigned int size = sizeof(is_on);

	sys5(SYS_setsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &is_on, size);
	sys5(SYS_getsockopt, fd, IPPROTO_TCP, TCP_NODELAY, &is_on, &size);
}
