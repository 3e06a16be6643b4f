// SPDX-License-Identifier: GPL-2.0-only
// A shared library: a function that is called once in each call, and two static points.
#include "usdt.h"

USDT_SEMAPHORE(lab, wanted);
static volatile int calls;

void in_library(void);
void in_library(void)
{
	calls++;
	USDT(lab, passed);
	if (USDT_IS_PROBED(lab, wanted))
		USDT_COUNTED(lab, wanted);
}
