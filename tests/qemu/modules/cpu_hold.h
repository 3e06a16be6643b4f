/* SPDX-License-Identifier: GPL-2.0-only */
/* How is a CPU held between two instructions of a function that cannot be probed? */
#ifndef CPU_HOLD_H
#define CPU_HOLD_H

#ifndef __ASSEMBLY__
#include <linux/types.h>

struct cpu_hold {
	unsigned long address;	/* the instruction before which to hold */
	bool reached;
	bool interrupts;	/* were they on there? */
	bool released;		/* set by the caller that releases the CPU */
	bool timed_out;		/* it went on by itself */
};

extern struct cpu_hold cpu_hold;

int cpu_hold_init(void);
void cpu_hold_exit(void);

/* Before the race: where to hold. */
void cpu_hold_prepare(unsigned long address);

/*
 * By the thread that is to be held, on the CPU where it stays: it is held the
 * first time that it comes to the address, with interrupts as they are there,
 * until it is released or some seconds have passed.
 */
void cpu_hold_arm(void);
void cpu_hold_disarm(void);

void cpu_hold_release(void);

/* Keeps the CPU busy for a millisecond. */
void cpu_hold_pass_ms(void);
#endif

#endif
