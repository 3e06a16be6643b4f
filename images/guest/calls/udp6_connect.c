// SPDX-License-Identifier: GPL-2.0-only
// Names the peer of a UDP socket of IPv6.
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in6 address;
static long fd;

void workload_setup(void)
{
	fd = socket_on_loopback6(SOCK_DGRAM, &address);
}

void workload(void)
{
	sys3(SYS_connect, fd, &address, sizeof(address));
}
