/* SPDX-License-Identifier: GPL-2.0-only */
/* At which of a function's instructions does a kprobe go? */
#ifndef LAB_PLACEMENT_H
#define LAB_PLACEMENT_H

#include <linux/kprobes.h>

#include "function.h"

#define PLACES_MAX	256

struct placement {
	unsigned int places;		/* instructions that were tried */
	unsigned int taken;		/* those that have a kprobe now */
	unsigned int straight;		/* kprobes[] of the last one that every call comes to */
	struct kprobe kprobes[PLACES_MAX];	/* those that were taken come first */
};

/*
 * Puts kprobes in from function->entry on: at every instruction, or at some that
 * lie as evenly as that goes where there are more than "most", PLACES_MAX at most.
 * Each has a post-handler, so that it is neither boosted nor optimised. Those that
 * are refused are left out. placement_take_out() ends it. May sleep.
 */
void placement_put_in(struct placement *placement, const struct function *function, unsigned int most,
		      kprobe_pre_handler_t handler);

/* Nothing is taken any more. May sleep. */
void placement_take_out(struct placement *placement);

#endif
