// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte to a message queue of System V, and receives it.
#include "workload.h"
#include <linux/ipc.h>

enum { KEY = 0x6c6162 };	// of all processes that make this call: a queue is there until it is removed

static long queue;
static struct {
	long type;
	char byte;
} message = {.type = 1};

void workload_setup(void)
{
	queue = sys2(SYS_msgget, KEY, IPC_CREAT | 0600);
}

void workload(void)
{
	sys4(SYS_msgsnd, queue, &message, 1, 0);
	sys5(SYS_msgrcv, queue, &message, 1, 0, 0);
}
