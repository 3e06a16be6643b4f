/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a module know about the kernel's jump optimisation, and how does it delay it? */
#ifndef LAB_OPTIMISER_H
#define LAB_OPTIMISER_H

#include <linux/types.h>

/*
 * Waits for the optimiser's pending pass, so that it does not meet the kprobe that
 * is registered next. False where kallsyms does not have the optimiser's work item
 * (without CONFIG_KALLSYMS_ALL). May sleep.
 */
bool optimiser_settle(void);

/*
 * Cancels the pass that the registration of a kprobe has scheduled, five ticks
 * ahead: the kprobe keeps its int3, and a hit runs its detour. Called after
 * optimiser_settle(), with nothing that takes time in between but the
 * registration. Another user's kprobe may start the optimiser again. May sleep.
 */
void optimiser_hold(void);

/* Bytes of a kprobe and the copy of its instruction. */
size_t kprobe_bytes(void);

/* The additional bytes of an optimised kprobe; 0 where kallsyms has no template for one. May sleep. */
size_t optimised_kprobe_bytes(void);

#endif
