/* SPDX-License-Identifier: GPL-2.0-only */
/* Which addresses of the kernel's text does the host give to a module? */
#ifndef LAB_SITES_H
#define LAB_SITES_H

#include <linux/types.h>

#define KPCACHE_SITES_MAX	65536

/* What was written so far, in the order of writing. */
extern unsigned long *sites;
extern unsigned int site_count;

/*
 * Shows <debugfs>/<module's name>/sites, to which the host writes addresses as
 * machine words. An address outside the kernel's own text is refused (-ERANGE), and
 * so are more than KPCACHE_SITES_MAX (-ENOSPC). Returns -ENOMEM, or -EOPNOTSUPP where
 * kallsyms has no _stext or _etext.
 */
int sites_init(void);
void sites_exit(void);

#endif
