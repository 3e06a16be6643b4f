/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * jprobe, which left the kernel in 4.15: a handler with the probed function's
 * own parameters, entered by a breakpoint and left by jprobe_return().
 *
 *	static ssize_t on_read(struct file *file, char __user *to, size_t size, loff_t *at)
 *	{
 *		this_cpu_add(bytes_asked_for, size);
 *		jprobe_return();
 *		return 0;
 *	}
 *	NOKPROBE_SYMBOL(on_read);
 *
 *	static struct jprobe reading = {
 *		.kp.symbol_name = "vfs_read",
 *		.kp.offset = 5,		// behind the ftrace nop; 9 where endbr64 is before that
 *		.entry = on_read,
 *	};
 *
 * A hit costs three traps. When the function goes on, its registers and the top
 * 64 bytes of the stack are as they were, whatever the handler did to its parameters.
 */
#ifndef LAB_JPROBE_H
#define LAB_JPROBE_H

#include <linux/kprobes.h>
#include <asm/asm.h>
#include <asm/nospec-branch.h>

#include "jprobe_exit.h"

/**
 * struct jprobe - a handler with the parameters of a probed function
 * @kp: names the place by @symbol_name and @offset, in bytes. It must be the
 *	function's entry, the first instruction after endbr and the ftrace nop. All
 *	else of it is for register_jprobe() only; @nmissed may be read.
 * @entry: the handler, which has the function's own type. It runs with interrupts
 *	   off and ends with jprobe_return().
 */
struct jprobe {
	struct kprobe kp;
	void *entry;
};

/**
 * register_jprobe() - put a breakpoint that leads to a handler at a function's entry
 * @jp: the jprobe, with its @kp and @entry set
 *
 * The reason of a refusal is in the kernel's log. Where a handler runs into a jprobe
 * of its own module, that one's handler is not called: the hit counts as missed, in
 * @nmissed of its kprobe.
 *
 * Context: May sleep.
 * Return: 0, or a negative errno:
 *
 * * -ENOENT: no such symbol
 * * -EINVAL: the place is no function's entry
 * * another one: register_kprobe() refuses the place
 */
int register_jprobe(struct jprobe *jp);

/**
 * unregister_jprobe() - remove a jprobe and its breakpoint
 * @jp: a registered jprobe
 *
 * On return no CPU is in the handler, nor on its way into or out of it.
 *
 * Context: May sleep.
 */
void unregister_jprobe(struct jprobe *jp);

/**
 * jprobe_return() - end a handler, and go on with the probed function
 *
 * Does not return to the handler, which needs a return statement for the compiler
 * only.
 *
 * Context: In a handler, on its stack.
 */
static __always_inline void jprobe_return(void)
{
	/*
	 * One instruction: a pointer called in C goes through a thunk where the
	 * kernel has retpolines.
	 */
	asm volatile(ANNOTATE_RETPOLINE_SAFE "\n"
		     "call *%[exit]\n"
		     : ASM_CALL_CONSTRAINT : [exit] "m" (jprobe_exit) : "memory");
}

#endif
