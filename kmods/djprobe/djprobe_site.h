/* SPDX-License-Identifier: GPL-2.0-only */
/* May the first instructions of a function be replaced by a jump? */
#ifndef LAB_DJPROBE_SITE_H
#define LAB_DJPROBE_SITE_H

#include <linux/kprobes.h>
#include <linux/types.h>

/* -EOPNOTSUPP where this kernel lacks what the functions below need. May sleep. */
int djprobe_site_init(void);

/*
 * Checks everything that can be known beforehand about a jump at addr. Returns
 * NULL and the size of the whole instructions that it covers, or the reason why
 * it must not be. May sleep.
 */
const char *djprobe_site_refusal(unsigned long addr, size_t *replaced);

/*
 * The kprobe that is armed at addr, NULL if there is none. It may be one that
 * stands for several, or for one that kprobes have prepared an optimisation of.
 */
struct kprobe *djprobe_site_kprobe(void *addr);

/* The module whose text addr is in; NULL in the kernel proper. */
struct module *djprobe_site_module(const void *addr);

/* Whether addr is in the text of the kernel or of a module. */
bool djprobe_site_is_text(unsigned long addr);

/* Whether any kprobe, armed or not, is at an address from start to before end. */
bool djprobe_site_probed(unsigned long start, unsigned long end);

#endif
