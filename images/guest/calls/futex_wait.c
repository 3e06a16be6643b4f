// SPDX-License-Identifier: GPL-2.0-only
// Wakes a second thread by a futex, and waits until that wakes it: each sleeps once.
#include "second_thread.h"
#include "workload.h"
#include <linux/futex.h>

static volatile int asked, answered;

static void wait_while(volatile int *word, int value)
{
	while (*word == value)
		sys4(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, 0);
}

static void give(volatile int *word)
{
	*word ^= 1;
	sys3(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1);
}

static void answer(void)
{
	for (;;) {
		wait_while(&asked, answered);
		give(&answered);
	}
}

void workload_setup(void)
{
	static const int priority;

	// A woken task of this policy does not preempt the one that wakes it: each call takes the same course.
	sys3(SYS_sched_setscheduler, 0, SCHED_BATCH, &priority);
	start_thread(answer);
}

void workload(void)
{
	int before = answered;

	give(&asked);
	wait_while(&answered, before);
}
