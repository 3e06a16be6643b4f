// SPDX-License-Identifier: GPL-2.0-only
// Reads nothing, and each 64th time flushes what it would have gathered.
#include "workload.h"

static unsigned int calls;

void workload(void)
{
	sys3(SYS_read, 0, 0, 0);
	if (++calls % 64 == 0)
		sys3(SYS_write, 1, 0, 0);
}
