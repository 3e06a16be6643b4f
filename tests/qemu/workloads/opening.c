// SPDX-License-Identifier: GPL-2.0-only
// Opens a file and closes it: the kernel fetches memory for it, which it frees later.
#include "workload.h"

void workload(void)
{
	sys1(SYS_close, sys2(SYS_open, "/dev/null", O_RDONLY));
}
