// SPDX-License-Identifier: GPL-2.0-only
// Sets, reads, lists and removes an extended attribute of a file of a tmpfs.
#include "tmpfs.h"
#include "workload.h"

#define ATTRIBUTE "trusted.lab"

static char value[64];
static long fd;

void workload_setup(void)
{
	mount_tmpfs();
	fd = sys3(SYS_open, TMPFS_FOLDER "/attributes", O_RDWR | O_CREAT, 0600);
}

void workload(void)
{
	sys5(SYS_fsetxattr, fd, ATTRIBUTE, "one", 3, 0);
	sys4(SYS_fgetxattr, fd, ATTRIBUTE, value, sizeof(value));
	sys3(SYS_flistxattr, fd, value, sizeof(value));
	sys2(SYS_fremovexattr, fd, ATTRIBUTE);
}
