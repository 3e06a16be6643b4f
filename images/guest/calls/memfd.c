// SPDX-License-Identifier: GPL-2.0-only
// Makes a file in memory and closes it.
#include "workload.h"

void workload(void)
{
	sys1(SYS_close, sys2(SYS_memfd_create, "lab", 0));
}
