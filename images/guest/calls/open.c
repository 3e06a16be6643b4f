// SPDX-License-Identifier: GPL-2.0-only
// Opens /dev/null and closes it.
#include "workload.h"
#include <linux/fcntl.h>

void workload(void)
{
	sys1(SYS_close, sys4(SYS_openat, AT_FDCWD, "/dev/null", O_RDONLY, 0));
}
