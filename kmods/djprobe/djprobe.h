/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * djprobe, the direct jump probe of 2005: at a function's entry a jump, instead
 * of a breakpoint, to a detour that calls the handler, runs a copy of the
 * replaced instructions and jumps back.
 *
 * One module can probe up to DETOUR_COUNT places at once. Djprobes of one module
 * at the same place share its jump; those of another module are refused there,
 * as each module carries its own implementation. A kprobe that another user
 * registers at the place of a jump succeeds, but is not hit until the jump is
 * gone: CPUs take the jump, not its breakpoint.
 */
#ifndef LAB_DJPROBE_H
#define LAB_DJPROBE_H

#include <linux/kprobes.h>
#include <linux/list.h>

struct djprobe_jump;

struct djprobe {
	/*
	 * The probe point, by name or, without one, by address: a function's
	 * entry in the kernel proper or in a module, which then cannot be
	 * unloaded while it is probed. "module:function" names a module's.
	 */
	const char *symbol;
	unsigned int offset;
	u8 *address;			/* filled in by register_djprobe() from a symbol */
	/*
	 * Called before the function, with preemption off. Of regs only general
	 * registers, flags and stack pointer are saved; what the handler writes
	 * there, except the stack pointer, the function sees. It must not call
	 * the function it probes.
	 */
	void (*handler)(struct djprobe *djp, struct pt_regs *regs);

	/* For register_djprobe() only. */
	struct djprobe_jump *jump;
	struct list_head list;
};

/*
 * Puts the jump in place, or joins those that share it: handlers are called in
 * the order of registration. Returns a negative errno, with the reason in the
 * kernel log, where the point cannot be probed. May sleep for some tenths of a
 * second.
 */
int register_djprobe(struct djprobe *djp);

/*
 * Removes the probe, and the jump with the last probe that shares it: then, on
 * return, no task and no CPU is in the detour, and the original bytes are back.
 * In any case none is in djp's handler. May sleep for some tenths of a second.
 */
void unregister_djprobe(struct djprobe *djp);

#endif
