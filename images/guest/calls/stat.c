// SPDX-License-Identifier: GPL-2.0-only
// Asks for a file's attributes by its path, as stat() of a C library does.
#include "workload.h"
#include <linux/fcntl.h>

#ifdef __i386__
#define STAT SYS_fstatat64
#else
#define STAT SYS_newfstatat
#endif

static char attributes[256];

void workload(void)
{
	sys4(STAT, AT_FDCWD, "/dev/null", attributes, 0);
}
