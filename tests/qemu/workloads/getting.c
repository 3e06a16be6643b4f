// SPDX-License-Identifier: GPL-2.0-only
// Asks for the parent's number twice in every call.
#include "workload.h"

void workload(void)
{
	sys0(SYS_getppid);
	sys0(SYS_getppid);
}
