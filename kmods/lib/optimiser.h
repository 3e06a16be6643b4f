/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a module know about the kernel's jump optimisation, and how does it delay it? */
#ifndef LAB_OPTIMISER_H
#define LAB_OPTIMISER_H

#include <linux/types.h>

/*
 * Waits for the optimiser's pending pass, so that it does not meet the kprobe that
 * is registered next. False where kallsyms does not have the optimiser's work item,
 * or its thread's state since Linux 7.0 (without CONFIG_KALLSYMS_ALL). May sleep.
 */
bool optimiser_settle(void);

/*
 * Called before and after the registration of a kprobe, behind optimiser_settle(),
 * with nothing that takes time in between: the kprobe keeps its int3, and a hit runs
 * its detour. The pass that the registration schedules, five ticks ahead, is
 * cancelled; a thread is not woken, as it seems to be awake. Another user's kprobe may
 * start the optimiser again. May sleep.
 */
void optimiser_hold_ahead(void);
void optimiser_hold(void);

/* Lets the optimiser work again, when the kprobe is gone. May sleep. */
void optimiser_release(void);

/* Bytes of a kprobe and the copy of its instruction. */
size_t kprobe_bytes(void);

/* The additional bytes of an optimised kprobe; 0 where kallsyms has no template for one. May sleep. */
size_t optimised_kprobe_bytes(void);

#endif
