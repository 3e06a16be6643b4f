// SPDX-License-Identifier: GPL-2.0-only
// Sends a byte to a message queue of POSIX, and receives it.
#include "workload.h"

#ifdef __i386__
#define SEND SYS_mq_timedsend_time64
#define RECEIVE SYS_mq_timedreceive_time64
#else
#define SEND SYS_mq_timedsend
#define RECEIVE SYS_mq_timedreceive
#endif

static long queue;
static char byte;

void workload_setup(void)
{
	static const long attributes[8] = {0, 4, 1};	// struct mq_attr: four messages of a byte

	queue = sys4(SYS_mq_open, "lab-mqueue", O_RDWR | O_CREAT, 0600, attributes);
}

void workload(void)
{
	sys5(SEND, queue, &byte, 1, 0, 0);
	sys5(RECEIVE, queue, &byte, 1, 0, 0);
}
