// SPDX-License-Identifier: GPL-2.0-only
// Adds to a semaphore of System V, and takes it away.
#include "workload.h"
#include <linux/ipc.h>

#ifdef __i386__
#define OPERATE SYS_semtimedop_time64
#else
#define OPERATE SYS_semtimedop
#endif

enum { KEY = 0x6c6162 };	// of all processes that make this call: a semaphore is there until it is removed

struct operation {	// struct sembuf
	unsigned short number;
	short change, flags;
};

static long semaphore;

void workload_setup(void)
{
	semaphore = sys3(SYS_semget, KEY, 1, IPC_CREAT | 0600);
}

void workload(void)
{
	static const struct operation up = {0, 1, 0}, down = {0, -1, 0};

	sys4(OPERATE, semaphore, &up, 1, 0);
	sys4(OPERATE, semaphore, &down, 1, 0);
}
