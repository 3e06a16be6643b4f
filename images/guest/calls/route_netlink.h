// SPDX-License-Identifier: GPL-2.0-only
// Requests to the kernel's routing and network devices.
#ifndef ROUTE_NETLINK_H
#define ROUTE_NETLINK_H

#include "sockets.h"
#include <linux/rtnetlink.h>

enum { AF_NETLINK = 16, LOOPBACK_INDEX = 1 };

static inline long route_socket(void)
{
	return sys3(SYS_socket, AF_NETLINK, SOCK_RAW, NETLINK_ROUTE);
}

static inline void send_request(long fd, const struct nlmsghdr *request)
{
	sys6(SYS_sendto, fd, request, request->nlmsg_len, 0, 0, 0);
}

#endif
