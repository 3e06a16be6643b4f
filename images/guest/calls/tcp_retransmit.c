// SPDX-License-Identifier: GPL-2.0-only
// Loses a TCP segment, which the kernel sends again without a timer: a filter of the receiving socket drops it, and three
// segments after it are acknowledged (RFC 6675). In a connection of its own, since a loss makes the sender's window smaller.
#include "sockets.h"
#include "workload.h"
#include <linux/filter.h>
#include <linux/tcp.h>

enum { LATER = 3 };

static struct sockaddr_in address;
static long listener;
static char bytes[1 + LATER];

void workload_setup(void)
{
	listener = listen_on_loopback(&address);
}

void workload(void)
{
	static struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
	static const struct sock_fprog filter = {.len = 1, .filter = &drop};
	static const int is_on = 1;	// small segments wait for no acknowledgement
	long from = sys3(SYS_socket, AF_INET, SOCK_STREAM, 0);

	sys3(SYS_connect, from, &address, sizeof(address));
	long to = sys4(SYS_accept4, listener, 0, 0, 0);

	sys5(SYS_setsockopt, from, IPPROTO_TCP, TCP_NODELAY, &is_on, sizeof(is_on));
	sys5(SYS_setsockopt, to, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter));
	sys6(SYS_sendto, from, bytes, 1, 0, 0, 0);
	sys5(SYS_setsockopt, to, SOL_SOCKET, SO_DETACH_FILTER, &filter, sizeof(filter));
	for (int i = 0; i < LATER; i++)
		sys6(SYS_sendto, from, bytes, 1, 0, 0, 0);
	sys6(SYS_recvfrom, to, bytes, sizeof(bytes), 0, 0, 0);
	reset_on_close(from);
	sys1(SYS_close, from);
	sys1(SYS_close, to);
}
