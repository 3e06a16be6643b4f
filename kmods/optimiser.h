/* SPDX-License-Identifier: GPL-2.0-only */
/* What can be known of the kernel's jump optimisation, and how is it held back? */
#ifndef LAB_OPTIMISER_H
#define LAB_OPTIMISER_H

#include <linux/types.h>

/*
 * Takes back the optimiser's next pass: a kprobe that waits to be optimised
 * keeps its int3, and a hit runs its detour. Somebody else's kprobe may start
 * the optimiser again. False where this kernel does not tell where its work is
 * (without CONFIG_KALLSYMS_ALL). May sleep.
 */
bool optimiser_hold(void);

/* Bytes of a kprobe and the copy of its instruction. */
size_t kprobe_bytes(void);

/* Bytes that the kernel takes besides for an optimised one; 0 where it does not tell. May sleep. */
size_t optimised_kprobe_bytes(void);

#endif
