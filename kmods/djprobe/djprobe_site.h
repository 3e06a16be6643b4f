/* SPDX-License-Identifier: GPL-2.0-only */
/* May the first instructions of a function be replaced by a jump? */
#ifndef LAB_DJPROBE_SITE_H
#define LAB_DJPROBE_SITE_H

#include <linux/types.h>

/* -EOPNOTSUPP where this kernel lacks what the functions below need. May sleep. */
int djprobe_site_init(void);

/*
 * Checks everything that can be checked before a jump is written at addr.
 * Returns NULL and the size of the whole instructions that it covers, or the
 * reason why there must not be one. May sleep.
 */
const char *djprobe_site_refusal(unsigned long addr, size_t *replaced);

#endif
