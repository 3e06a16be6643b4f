// SPDX-License-Identifier: GPL-2.0-only
// Makes a TCP socket, listens at a port that the kernel chooses, and closes it.
#include "sockets.h"
#include "workload.h"

void workload(void)
{
	long fd = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);

	sys2(SYS_listen, fd, 16);
	sys1(SYS_close, fd);
}
