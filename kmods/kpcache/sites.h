/* SPDX-License-Identifier: GPL-2.0-only */
/* Which addresses of the kernel's text does the host hand to a module? */
#ifndef LAB_SITES_H
#define LAB_SITES_H

#include <linux/types.h>

#define SITES_MAX	65536

/* What was written so far, in the order of writing. */
extern unsigned long *sites;
extern unsigned int site_count;

/*
 * Shows <debugfs>/<module's name>/sites, to which the host writes addresses as
 * machine words. An address that is not in the kernel's own text is refused, and
 * so are too many. -ENOMEM, or -EOPNOTSUPP where the kernel's text is not told.
 */
int sites_init(void);
void sites_exit(void);

#endif
