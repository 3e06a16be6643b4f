/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How does a module spare a kprobe the single step where the kernel would not?
 *
 * A preemptible kernel is built without the kprobes' booster. Here a pre-handler
 * does what that would: it sends the CPU to a copy of the probed instruction
 * with a jump behind it, back to the instruction that follows.
 */
#ifndef LAB_BOOSTER_H
#define LAB_BOOSTER_H

#include <linux/types.h>
#include <asm/ptrace.h>

/*
 * Writes the copy, in the module's own text. Called once, before the kprobe at
 * addr is registered. Returns NULL, or the reason why there is none. May sleep.
 */
const char *booster_prepare(unsigned long addr);

/*
 * Whoever has left the kprobe for the copy has also left the copy on return.
 * Called after the kprobe is unregistered. May sleep for some tenths of a second.
 */
void booster_drain(void);

/* For a pre-handler, which then returns 1. */
void booster_go(struct pt_regs *regs);

#endif
