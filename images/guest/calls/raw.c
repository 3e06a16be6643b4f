// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte over a raw socket of the loopback device to itself, and receives it.
#include "sockets.h"
#include "workload.h"

static long fd;
static char packet[64];	// an IPv4 header comes before it

void workload_setup(void)
{
	struct sockaddr_in address = loopback_address();

	set_up_loopback();
	fd = sys3(SYS_socket, AF_INET, SOCK_RAW, EXPERIMENT);
	sys3(SYS_connect, fd, &address, sizeof(address));
}

void workload(void)
{
	sys6(SYS_sendto, fd, packet, 1, 0, 0, 0);
	sys6(SYS_recvfrom, fd, packet, sizeof(packet), 0, 0, 0);
}
