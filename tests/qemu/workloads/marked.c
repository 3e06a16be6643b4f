// SPDX-License-Identifier: GPL-2.0-only
// Passes a static probe point in every call, and another one only while that is probed.
#include "usdt.h"

USDT_SEMAPHORE(lab, wanted);

void workload(void)
{
	USDT(lab, passed);
	if (USDT_IS_PROBED(lab, wanted))
		USDT_COUNTED(lab, wanted);
}
