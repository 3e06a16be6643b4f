/* SPDX-License-Identifier: GPL-2.0-only */
/* Asks the driver of loop devices, which Debian has as a module, for what it does not know. */
#include "workload.h"

enum { UNKNOWN = 1 };

static int file;

void workload_setup(void)
{
	file = sys2(SYS_open, "/dev/loop-control", O_RDONLY);
}

void workload(void)
{
	sys3(SYS_ioctl, file, UNKNOWN, 0);
}
