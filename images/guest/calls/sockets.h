// SPDX-License-Identifier: GPL-2.0-only
// Sockets of the loopback device, which is set up on first use.
#ifndef SOCKETS_H
#define SOCKETS_H

#include "runtime.h"
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/sockios.h>
#include <asm/socket.h>

// Of the C library, whose headers a workload has not.
enum { AF_UNIX = 1, AF_INET = 2, AF_INET6 = 10, SOCK_STREAM = 1, SOCK_DGRAM = 2, SOCK_RAW = 3, SHUT_WR = 1 };
// For experiments (RFC 3692): no protocol of the kernel takes its packets.
enum { EXPERIMENT = 253 };

struct vector {	// struct iovec
	void *base;
	size_t size;
};

struct message {	// struct user_msghdr
	void *name;
	int name_size;
	struct vector *vectors;
	size_t vector_count;
	void *control;
	size_t control_size;
	unsigned int flags;
};

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

// With no port: a socket that is bound to it gets one.
static inline struct sockaddr_in loopback_address(void)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {__builtin_bswap32(INADDR_LOOPBACK)}};
}

static inline struct sockaddr_in6 loopback6_address(void)
{
	return (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_addr.s6_addr[15] = 1};
}

// A socket at an address of the loopback device, which gets its port.
static inline long bound_socket(int family, int type, void *address, unsigned int size)
{
	long fd = sys3(SYS_socket, family, type, 0);

	set_up_loopback();
	sys3(SYS_bind, fd, address, size);
	sys3(SYS_getsockname, fd, address, &size);
	return fd;
}

// A socket at a port of its own, and its address.
static inline long socket_on_loopback(int type, struct sockaddr_in *address)
{
	*address = loopback_address();
	return bound_socket(AF_INET, type, address, sizeof(*address));
}

static inline long socket_on_loopback6(int type, struct sockaddr_in6 *address)
{
	*address = loopback6_address();
	return bound_socket(AF_INET6, type, address, sizeof(*address));
}

static inline long listen_on_loopback(struct sockaddr_in *address)
{
	long fd = socket_on_loopback(SOCK_STREAM, address);

	sys2(SYS_listen, fd, 16);
	return fd;
}

static inline long listen_on_loopback6(struct sockaddr_in6 *address)
{
	long fd = socket_on_loopback6(SOCK_STREAM, address);

	sys2(SYS_listen, fd, 16);
	return fd;
}

// Closing it sends a reset: nothing waits for two minutes behind each connection.
static inline void reset_on_close(long fd)
{
	static const int at_once[2] = {1, 0};	// struct linger

	sys5(SYS_setsockopt, fd, SOL_SOCKET, SO_LINGER, at_once, sizeof(at_once));
}

#endif
