/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * jprobe, which left the kernel in 4.15: a handler with the probed function's
 * own parameters, entered by a breakpoint and left by jprobe_return().
 */
#ifndef LAB_JPROBE_H
#define LAB_JPROBE_H

#include <linux/kprobes.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>

#include "jprobe_exit.h"

struct jprobe {
	struct kprobe kp;	/* symbol_name and offset of a function's entry */
	void *entry;		/* the handler; runs with interrupts off */
};

/*
 * Arms jp->kp. Returns a negative errno, with the reason in the kernel log,
 * where the point is no function entry or kprobes refuse it. May sleep.
 */
int register_jprobe(struct jprobe *jp);

/* On return no CPU is in the handler, nor on its way into or out of it. May sleep. */
void unregister_jprobe(struct jprobe *jp);

/*
 * Ends a handler: does not return to it but goes on with the probed function.
 * One instruction: a pointer called in C goes through a thunk where the kernel
 * has retpolines.
 */
static __always_inline void jprobe_return(void)
{
	asm volatile(ANNOTATE_RETPOLINE_SAFE
		     "call *%[exit]\n"
		     : ASM_CALL_CONSTRAINT : [exit] "m" (jprobe_exit) : "memory");
}

#endif
