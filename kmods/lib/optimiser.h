/* SPDX-License-Identifier: GPL-2.0-only */
/* What can be known of the kernel's jump optimisation, and how is it held back? */
#ifndef LAB_OPTIMISER_H
#define LAB_OPTIMISER_H

#include <linux/types.h>

/*
 * Has the optimiser finish what it was asked for, so that no pass from before
 * meets the kprobe that is registered next. False where this kernel does not
 * tell where the optimiser's work is (without CONFIG_KALLSYMS_ALL). May sleep.
 */
bool optimiser_settle(void);

/*
 * Takes back the pass that registering a kprobe has asked for, which begins five
 * ticks later: the kprobe keeps its int3, and a hit runs its detour. Called
 * after optimiser_settle(), with nothing that takes time in between but the
 * registration. Somebody else's kprobe may start the optimiser again. May sleep.
 */
void optimiser_hold(void);

/* Bytes of a kprobe and the copy of its instruction. */
size_t kprobe_bytes(void);

/* Bytes that the kernel takes besides for an optimised one; 0 where it does not tell. May sleep. */
size_t optimised_kprobe_bytes(void);

#endif
