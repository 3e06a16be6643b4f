/* SPDX-License-Identifier: GPL-2.0-only */
/* Which of a function's instructions take a kprobe? */
#ifndef LAB_PLACEMENT_H
#define LAB_PLACEMENT_H

#include <linux/kprobes.h>

#include "function.h"

#define PLACEMENT_MAX	256

struct placement {
	unsigned int places;		/* instructions that were tried */
	unsigned int taken;		/* those that have a kprobe now */
	unsigned int straight;		/* index in kprobes[] of the last one that every call reaches */
	struct kprobe kprobes[PLACEMENT_MAX];	/* those that were taken come first */
};

/*
 * Registers kprobes from function->entry on: at every instruction, or, where there
 * are more than "most" (PLACEMENT_MAX or fewer), at every second, third, ... one.
 * Each has a post-handler, so that it is neither boosted nor optimised. Those that
 * are refused are left out. placement_take_out() undoes it. May sleep.
 */
void placement_put_in(struct placement *placement, const struct function *function, unsigned int most,
		      kprobe_pre_handler_t handler);

/* Unregisters them all. May sleep. */
void placement_take_out(struct placement *placement);

#endif
