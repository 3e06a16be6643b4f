// SPDX-License-Identifier: GPL-2.0-only
// Wakes another thread by a pipe, and sleeps until this one wakes it by another: two switches of tasks.
#include "second_thread.h"
#include "workload.h"

static int there[2], back[2];

static void answer(void)
{
	char byte;

	for (;;) {
		sys3(SYS_read, there[0], &byte, 1);
		sys3(SYS_write, back[1], &byte, 1);
	}
}

void workload_setup(void)
{
	static const int priority;

	sys2(SYS_pipe2, there, 0);
	sys2(SYS_pipe2, back, 0);
	// A task of this kind does not take the CPU from the one that wakes it, however long that has run.
	sys3(SYS_sched_setscheduler, 0, SCHED_BATCH, &priority);
	start_thread(answer);
}

void workload(void)
{
	char byte = 0;

	sys3(SYS_write, there[1], &byte, 1);
	sys3(SYS_read, back[0], &byte, 1);
}
