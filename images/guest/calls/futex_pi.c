// SPDX-License-Identifier: GPL-2.0-only
// Takes a futex with priority inheritance by the kernel, as a contended mutex is, and gives it back.
#include "workload.h"
#include <linux/futex.h>

static int word;

void workload(void)
{
	sys4(SYS_futex, &word, FUTEX_LOCK_PI_PRIVATE, 0, 0);
	sys2(SYS_futex, &word, FUTEX_UNLOCK_PI_PRIVATE);
}
