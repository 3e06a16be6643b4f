// SPDX-License-Identifier: GPL-2.0-only
// Renames a file, and back.
#include "workload.h"

void workload_setup(void)
{
	sys1(SYS_close, sys2(SYS_creat, "/tmp/lab-old", 0600));
}

void workload(void)
{
	sys2(SYS_rename, "/tmp/lab-old", "/tmp/lab-new");
	sys2(SYS_rename, "/tmp/lab-new", "/tmp/lab-old");
}
