// SPDX-License-Identifier: GPL-2.0-only
// Duplicates a descriptor and closes the copy.
#include "workload.h"

enum { COPY = 100 };

void workload(void)
{
	sys2(SYS_dup2, 1, COPY);
	sys1(SYS_close, COPY);
}
