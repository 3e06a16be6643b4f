// SPDX-License-Identifier: GPL-2.0-only
// Sets the process's interval timer far from its end, and stops it.
#include "workload.h"
#include <linux/time.h>

static const struct __kernel_old_itimerval hour = {.it_value = {3600, 0}}, never;

void workload(void)
{
	sys3(SYS_setitimer, ITIMER_REAL, &hour, 0);
	sys3(SYS_setitimer, ITIMER_REAL, &never, 0);
}
