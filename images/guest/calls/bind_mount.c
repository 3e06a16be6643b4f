// SPDX-License-Identifier: GPL-2.0-only
// Mounts a folder at another one and unmounts it.
#include "workload.h"
#include <linux/mount.h>

#define FOLDER "/tmp/lab-bind-mount"

void workload_setup(void)
{
	sys2(SYS_mkdir, FOLDER, 0700);
}

void workload(void)
{
	sys5(SYS_mount, "/proc", FOLDER, 0, MS_BIND, 0);
	sys2(SYS_umount2, FOLDER, 0);
}
