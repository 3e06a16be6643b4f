// SPDX-License-Identifier: GPL-2.0-only
// Makes a mounted file system the root of a process, whose root is another one, and goes back to the first.
#include "workload.h"

#define OUTER "/tmp/lab-pivot"

static long root;

void workload_setup(void)
{
	// Another process has made them if the folder is there.
	if (sys2(SYS_mkdir, OUTER, 0700) == 0) {
		sys5(SYS_mount, "none", OUTER, "tmpfs", 0, 0);
		sys2(SYS_mkdir, OUTER "/inner", 0700);
		sys5(SYS_mount, "none", OUTER "/inner", "tmpfs", 0, 0);
		sys2(SYS_mkdir, OUTER "/inner/outer", 0700);
	}
	root = sys2(SYS_open, "/", O_RDONLY);
}

void workload(void)
{
	sys1(SYS_chroot, OUTER);	// the root of the initramfs cannot be put elsewhere
	sys2(SYS_pivot_root, "/inner", "/inner/outer");
	sys2(SYS_pivot_root, "/outer", "/outer/inner");
	sys1(SYS_fchdir, root);
	sys1(SYS_chroot, ".");
}
