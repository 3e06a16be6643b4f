// SPDX-License-Identifier: GPL-2.0-only
// A tmpfs, which the first process of a guest mounts.
#ifndef TMPFS_H
#define TMPFS_H

#include "runtime.h"

#define TMPFS_FOLDER "/tmp/lab-tmpfs"

static inline void mount_tmpfs(void)
{
	if (sys2(SYS_mkdir, TMPFS_FOLDER, 0700) == 0)
		sys5(SYS_mount, "none", TMPFS_FOLDER, "tmpfs", 0, 0);
}

#endif
