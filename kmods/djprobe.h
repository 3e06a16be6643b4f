/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * djprobe, the direct jump probe of 2005: at a function's entry a jump, instead
 * of a breakpoint, to a detour that calls the handler, runs a copy of the
 * replaced instructions and jumps back.
 */
#ifndef LAB_DJPROBE_H
#define LAB_DJPROBE_H

#include <linux/kprobes.h>

struct djprobe {
	/* The probe point, which must be a function's entry in the kernel proper. */
	const char *symbol;
	unsigned int offset;
	/*
	 * Called before the function, with preemption off. Of regs only general
	 * registers, flags and stack pointer are saved; what the handler writes
	 * there, except the stack pointer, the function sees. It must not call
	 * the function it probes.
	 */
	void (*handler)(struct djprobe *djp, struct pt_regs *regs);

	/* Filled in by register_djprobe(). */
	struct list_head list;
	struct kprobe bypass;			/* .addr is the probe point */
	size_t replaced;			/* bytes of whole instructions under the jump */
	u8 original[JMP32_INSN_SIZE];		/* what the jump was written over */
	void (*emulate_op)(struct kprobe *kp, struct pt_regs *regs);	/* kprobes' own */
	u8 *detour;
	size_t detour_size;
	u8 *copy;				/* the replaced instructions, in the detour */
};

/*
 * Puts the jump in place. djp must be an object of the module itself, not
 * allocated. Returns a negative errno, with the reason in the kernel log, where
 * the point cannot be probed. May sleep for some tenths of a second.
 */
int register_djprobe(struct djprobe *djp);

/*
 * Takes the jump away. On return no task and no CPU is in the detour or in the
 * handler, and the original bytes are back. May sleep for some tenths of a second.
 */
void unregister_djprobe(struct djprobe *djp);

#endif
