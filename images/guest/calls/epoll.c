// SPDX-License-Identifier: GPL-2.0-only
// Asks an epoll instance for events, of which it has one.
#include "workload.h"
#include <linux/eventpoll.h>

static long instance;

void workload_setup(void)
{
	struct epoll_event wanted = {.events = EPOLLIN};

	instance = sys1(SYS_epoll_create1, 0);
	sys4(SYS_epoll_ctl, instance, EPOLL_CTL_ADD, sys2(SYS_eventfd2, 1, 0), &wanted);
}

void workload(void)
{
	struct epoll_event found;

	sys4(SYS_epoll_wait, instance, &found, 1, 0);
}
