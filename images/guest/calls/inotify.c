// SPDX-License-Identifier: GPL-2.0-only
// Writes to a file that inotify watches, and reads the event.
#include "workload.h"
#include <linux/inotify.h>

#define FILE "/tmp/lab-inotify"

static char event[256];
static long fd, watcher;

void workload_setup(void)
{
	fd = sys3(SYS_open, FILE, O_WRONLY | O_CREAT, 0600);
	watcher = sys1(SYS_inotify_init1, 0);
	sys3(SYS_inotify_add_watch, watcher, FILE, IN_MODIFY);
}

void workload(void)
{
	sys5(SYS_pwrite64, fd, "x", 1, 0, 0);
	sys3(SYS_read, watcher, event, sizeof(event));
}
