/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does a hit pass besides the kprobe's own handler, and how does a module do without it?
 *
 * aggregator    register_kprobe() puts one before every kprobe that could become a
 *               jump (OPTPROBES, try_to_optimize_kprobe()), whether or not
 *               debug.kprobes-optimization lets it. It walks the list of the place's
 *               kprobes, of which there is one.
 * post-handler  the module's own, which keeps the kernel from boosting the kprobe:
 *               the kernel chooses when the kprobe is registered.
 *
 * The parameters "aggregator" and "post_handler" tell whether a hit passes it. The
 * host takes it off the registered kprobe by writing 0; nothing puts it back.
 */
#ifndef LAB_KPROBE_EXTRAS_H
#define LAB_KPROBE_EXTRAS_H

#include <linux/kprobes.h>

/* The module's main file says which kprobe it is. */
extern struct kprobe *const extras_of;

#endif
