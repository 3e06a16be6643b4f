// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte by sendmsg() over a UDP socket to itself, and receives it by recvmsg().
#include "sockets.h"
#include "workload.h"

static struct sockaddr_in address;
static long fd;
static char byte;
static struct vector vector = {&byte, 1};

void workload_setup(void)
{
	fd = socket_on_loopback(SOCK_DGRAM, &address);
}

void workload(void)
{
	struct message sent = {.name = &address, .name_size = sizeof(address), .vectors = &vector, .vector_count = 1};
	struct message received = {.vectors = &vector, .vector_count = 1};

	sys3(SYS_sendmsg, fd, &sent, 0);
	sys3(SYS_recvmsg, fd, &received, 0);
}
