/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * djprobe, the direct jump probe of 2005: at a function's entry a jump, instead
 * of a breakpoint, to a detour that calls the handler, runs a copy of the
 * replaced instructions and jumps back.
 *
 * One module can probe up to 64 places at once (DETOUR_COUNT). Djprobes of one
 * module at the same place share its jump; those of another module are refused
 * there, as each module carries its own implementation. A kprobe that another user
 * registers at the place of a jump succeeds, but is not hit until the jump is
 * gone: CPUs take the jump, not its breakpoint. Behind the first of the bytes that
 * the jump covers, kprobes are refused.
 */
#ifndef LAB_DJPROBE_H
#define LAB_DJPROBE_H

#include <linux/kprobes.h>
#include <linux/list.h>

struct djprobe;
struct djprobe_jump;

/**
 * typedef djprobe_handler - what a hit calls, before the probed function goes on
 * @djp: the djprobe that was hit
 * @regs: the registers at the function's entry. The segments and @ss are
 *	  undefined; @ip and @orig_ax are as in an optimised kprobe's.
 *
 * What the handler writes into general registers and flags the function sees; the
 * rest, the stack pointer and @ss too, it must leave alone. It must not call the
 * function that it probes.
 *
 * A hit on top of another is a hit like any other, whether an interrupt, an NMI or
 * the handler itself brings it, at this place or elsewhere: there is no guard against
 * recursion, and so no count of missed hits. A handler that comes to its own place has
 * no end. What an NMI may hit must be safe there.
 *
 * Context: preemption is off, interrupts are as the probed function has them, on or
 * off; the handler must not sleep.
 */
typedef void djprobe_handler(struct djprobe *djp, struct pt_regs *regs);

/**
 * struct djprobe - a handler at a function's entry
 * @symbol: the function; "module:function" names a module's. NULL where @address
 *	    names the place. The module cannot be unloaded while it is probed.
 * @offset: bytes behind the symbol; 0 for the function's entry. For @symbol only.
 * @address: the place itself, where @symbol is NULL: a function's first own
 *	     instruction. Where there is a @symbol, register_djprobe() sets it.
 * @handler: what a hit calls; required
 * @jump: for register_djprobe() only; NULL while the probe is not registered
 * @list: for register_djprobe() only
 *
 * It must stay in place until unregister_djprobe() has returned: a module unregisters its
 * djprobes in its exit function. rmmod does not do that by itself, and the jump would
 * lead into memory that is free. While a djprobe is in a module's text that module is
 * in use, and rmmod refuses it; with djprobe.ko that holds for a module that probes
 * itself, too, which has to unregister before.
 */
struct djprobe {
	const char *symbol;
	unsigned int offset;
	u8 *address;
	djprobe_handler *handler;

	struct djprobe_jump *jump;
	struct list_head list;
};

int register_djprobe(struct djprobe *djp);
int unregister_djprobe(struct djprobe *djp);

#endif
