/* SPDX-License-Identifier: GPL-2.0-only */
/* How does the kernel go on after the handler of a kprobe that an int3 arms? */
#ifndef LAB_STEP_H
#define LAB_STEP_H

#include <linux/kprobes.h>

/*
 * In setup_singlestep()'s order. A kprobe with a post-handler is not boostable, nor
 * is any on a preemptible kernel (prepare_singlestep()).
 */
static inline const char *step_of(const struct kprobe *kp)
{
	if (kp->ainsn.boostable)
		return "boosted";
	return kp->ainsn.emulate_op ? "emulated" : "single-stepped";
}

#endif
