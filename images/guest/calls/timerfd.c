// SPDX-License-Identifier: GPL-2.0-only
// Starts a timer of a thousand seconds by a timerfd, and stops it.
#include "workload.h"

static long fd;
static const long started[4] = {0, 0, 1000, 0}, stopped[4];	// struct itimerspec

void workload_setup(void)
{
	fd = sys2(SYS_timerfd_create, 1, 0);	// CLOCK_MONOTONIC
}

void workload(void)
{
	sys4(SYS_timerfd_settime, fd, 0, started, 0);
	sys4(SYS_timerfd_settime, fd, 0, stopped, 0);
}
