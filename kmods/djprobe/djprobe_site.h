/* SPDX-License-Identifier: GPL-2.0-only */
/* May the first instructions of a function be replaced by a jump? */
#ifndef LAB_DJPROBE_SITE_H
#define LAB_DJPROBE_SITE_H

#include <linux/types.h>

#include "refusal.h"

/* -EOPNOTSUPP where this kernel lacks what the functions below need. May sleep. */
int djprobe_site_init(void);

/*
 * Checks everything that can be checked before a jump is written at addr.
 * Where it is not refused, replaced is the size of the whole instructions that
 * the jump covers: five to nineteen bytes. May sleep.
 */
struct refusal djprobe_site_refusal(unsigned long addr, size_t *replaced);

#endif
