/* SPDX-License-Identifier: GPL-2.0-only */
/* How are kprobes kept out of the bytes under a djprobe's jump? */
#ifndef LAB_DJPROBE_RESERVE_H
#define LAB_DJPROBE_RESERVE_H

#include <linux/types.h>

/* False on kernels without CONFIG_GENERIC_BUG, where the functions below do nothing. */
bool djprobe_reserve_works(void);

/*
 * From here on register_kprobe() returns -EINVAL for each address from addr to
 * before addr + size. There is room for all detours. Callers serialise these two.
 */
void djprobe_reserve(const u8 *addr, size_t size);

/* Undoes it. */
void djprobe_release(const u8 *addr, size_t size);

#endif
