/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How does a module boost a kprobe, which then needs no single step, where the kernel does not?
 *
 * A preemptible kernel is built without the kprobes' booster. Here a pre-handler
 * does the same: it sends the CPU to a copy of the probed instruction, with a jump
 * behind it to the instruction that follows.
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
 * On return every task that the kprobe has sent to the copy has left it. Called
 * after the kprobe is unregistered. May sleep for some tenths of a second.
 */
void booster_drain(void);

/* For a pre-handler, which then returns 1. */
void booster_go(struct pt_regs *regs);

#endif
