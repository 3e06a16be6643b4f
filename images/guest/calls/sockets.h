// SPDX-License-Identifier: GPL-2.0-only
// Sockets of the loopback device, which is set up on first use.
#ifndef SOCKETS_H
#define SOCKETS_H

#include "runtime.h"
#include <linux/in.h>
#include <linux/sockios.h>
#include <asm/socket.h>

// Of the C library, whose headers a workload has not.
enum { AF_UNIX = 1, AF_INET = 2, SOCK_STREAM = 1, SOCK_DGRAM = 2 };

static inline void set_up_loopback(void)
{
	struct {
		char name[16];
		short flags;
		char other[22];
	} device = {.name = "lo", .flags = 1};	// struct ifreq and IFF_UP of <linux/if.h>
	long fd = sys3(SYS_socket, AF_INET, SOCK_DGRAM, 0);

	sys3(SYS_ioctl, fd, SIOCSIFFLAGS, &device);
	sys1(SYS_close, fd);
}

// A socket at a port of its own, and its address.
static inline long socket_on_loopback(int type, struct sockaddr_in *address)
{
	unsigned int size = sizeof(*address);
	long fd = sys3(SYS_socket, AF_INET, type, 0);

	set_up_loopback();
	*address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {__builtin_bswap32(INADDR_LOOPBACK)}};
	sys3(SYS_bind, fd, address, sizeof(*address));
	sys3(SYS_getsockname, fd, address, &size);
	return fd;
}

static inline long listen_on_loopback(struct sockaddr_in *address)
{
	long fd = socket_on_loopback(SOCK_STREAM, address);

	sys2(SYS_listen, fd, 16);
	return fd;
}

#endif
