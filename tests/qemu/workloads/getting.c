// SPDX-License-Identifier: GPL-2.0-only
// Asks for the parent's number twice in every call.
#include "workload.h"

#ifdef __i386__
enum { SYS_getppid = 64 };
#else
enum { SYS_getppid = 110 };
#endif

void workload(void)
{
	sys0(SYS_getppid);
	sys0(SYS_getppid);
}
