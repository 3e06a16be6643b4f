// SPDX-License-Identifier: GPL-2.0-only
// Mounts a tmpfs and unmounts it.
#include "workload.h"

#define FOLDER "/tmp/lab-mount"

void workload_setup(void)
{
	sys2(SYS_mkdir, FOLDER, 0700);
}

void workload(void)
{
	sys5(SYS_mount, "none", FOLDER, "tmpfs", 0, 0);
	sys2(SYS_umount2, FOLDER, 0);
}
