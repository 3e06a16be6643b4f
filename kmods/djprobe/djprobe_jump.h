/* SPDX-License-Identifier: GPL-2.0-only */
/* How is a djprobe's jump written into the kernel's text, and removed again? */
#ifndef LAB_DJPROBE_JUMP_H
#define LAB_DJPROBE_JUMP_H

#include "djprobe.h"
#include "djprobe_stub.h"
#include "refusal.h"

struct djprobe_jump {
	/*
	 * Whose handler a hit calls, read by the detour: the only djprobe here,
	 * or "shared", whose handler calls those of all.
	 */
	struct djprobe *called;
	struct djprobe shared;
	struct list_head probes;

	struct list_head list;
	struct module *module;			/* whose text this is; NULL for the kernel proper */
	struct kprobe bypass;			/* .addr is the probe point */
	size_t replaced;			/* bytes of whole instructions under the jump */
	u8 original[DJPROBE_COVERED_MAX];	/* those bytes */
	bool claimed;				/* kprobes have another first byte and emulate_op */
	void (*emulate_op)(struct kprobe *kp, struct pt_regs *regs);	/* kprobes' own */
	u8 *detour;				/* NULL where the struct is free */
	size_t detour_size;
	u8 *copy;				/* the replaced instructions, in the detour */
};

/* Makes a jump at djp->address whose hits call djp. Callers serialise these four. May sleep. */
struct refusal djprobe_jump_make(struct djprobe *djp);

/* Removes a jump; on return no CPU is in its detour. May sleep. */
void djprobe_jump_remove(struct djprobe_jump *jump);

/* The jump whose hits call djp, NULL where djp is not registered. */
struct djprobe_jump *djprobe_jump_of(const struct djprobe *djp);

/* This module's jump at address, NULL where there is none. */
struct djprobe_jump *djprobe_jump_at(const u8 *address);

#endif
