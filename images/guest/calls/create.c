// SPDX-License-Identifier: GPL-2.0-only
// Makes a file and removes it.
#include "workload.h"

void workload(void)
{
	sys1(SYS_close, sys2(SYS_creat, "/tmp/lab-create", 0600));
	sys1(SYS_unlink, "/tmp/lab-create");
}
