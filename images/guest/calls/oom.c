// SPDX-License-Identifier: GPL-2.0-only
// Makes a process in a memory cgroup and takes the memory of this away: the kernel kills the process.
#include "workload.h"

#define ROOT "/tmp/lab-cgroup"
#define GROUP ROOT "/oom"

enum { PAGE = 4096, PAGES = 16 };
enum { REALTIME = 1 };	// SCHED_FIFO of <linux/sched.h>
enum { CONSOLE_OFF = 6, CONSOLE_ON = 7 };	// SYSLOG_ACTION_CONSOLE_OFF and _ON of the kernel's <linux/syslog.h>

static char memory[PAGES * PAGE];

static void tell(const char *file, const char *text)
{
	long fd = sys2(SYS_open, file, O_WRONLY);

	sys3(SYS_write, fd, text, text_length(text));
	sys1(SYS_close, fd);
}

void workload_setup(void)
{
	// Another process has mounted it if the folder is there.
	if (sys2(SYS_mkdir, ROOT, 0700) == 0) {
		sys5(SYS_mount, "none", ROOT, "cgroup2", 0, 0);
		tell(ROOT "/cgroup.subtree_control", "+memory");
		sys2(SYS_mkdir, GROUP, 0700);
	}
	tell(GROUP "/memory.max", "max");	// a process that was killed has left less
}

void workload(void)
{
	static const int priority = 1;
	int ends[2];
	char byte = 0;

	sys2(SYS_pipe2, ends, 0);
	long pid = sys0(SYS_fork);

	if (pid == 0) {
		tell(GROUP "/cgroup.procs", "0");
		for (long at = 0; at < (long)sizeof(memory); at += PAGE)
			((volatile char *)memory)[at] = 1;
		// Killed, it ends at once: the kernel looks for a victim again and again until it has.
		sys3(SYS_sched_setscheduler, 0, REALTIME, &priority);
		sys3(SYS_write, ends[1], &byte, 1);
		for (;;)
			sys0(SYS_pause);
	}
	sys1(SYS_close, ends[1]);
	sys3(SYS_read, ends[0], &byte, 1);
	sys3(SYS_syslog, CONSOLE_OFF, 0, 0);	// to print the kernel's report takes longer than a timer tick's period
	tell(GROUP "/memory.max", "0");
	sys3(SYS_syslog, CONSOLE_ON, 0, 0);
	sys4(SYS_wait4, pid, 0, 0, 0);
	tell(GROUP "/memory.max", "max");
	sys1(SYS_close, ends[0]);
}
