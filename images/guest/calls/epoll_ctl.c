// SPDX-License-Identifier: GPL-2.0-only
// Adds an eventfd to an epoll instance, and removes it.
#include "workload.h"
#include <linux/eventpoll.h>

static long instance, fd;

void workload_setup(void)
{
	instance = sys1(SYS_epoll_create1, 0);
	fd = sys2(SYS_eventfd2, 0, 0);
}

void workload(void)
{
	struct epoll_event wanted = {.events = EPOLLIN};

	sys4(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, fd, &wanted);
	sys4(SYS_epoll_ctl, instance, EPOLL_CTL_DEL, fd, 0);
}
