// SPDX-License-Identifier: GPL-2.0-only
// Makes a folder and removes it.
#include "workload.h"

void workload(void)
{
	sys2(SYS_mkdir, "/tmp/lab-mkdir", 0700);
	sys1(SYS_rmdir, "/tmp/lab-mkdir");
}
