// SPDX-License-Identifier: GPL-2.0-only
// Mounts a tmpfs by the system calls of Linux 5.2, attached to no folder, and closes it.
#include "workload.h"
#include <linux/mount.h>

void workload(void)
{
	long context = sys2(SYS_fsopen, "tmpfs", 0);

	sys5(SYS_fsconfig, context, FSCONFIG_CMD_CREATE, 0, 0, 0);
	long mount = sys3(SYS_fsmount, context, 0, 0);

	sys1(SYS_close, mount);
	sys1(SYS_close, context);
}
