/* SPDX-License-Identifier: GPL-2.0-only */
/* What does the kernel know about an address in its text? */
#ifndef LAB_DJPROBE_TEXT_H
#define LAB_DJPROBE_TEXT_H

#include <linux/kprobes.h>
#include <linux/types.h>

/* -EOPNOTSUPP where this kernel lacks what the functions below need. May sleep. */
int djprobe_text_init(void);

/* Whether addr is in the text of the kernel or of a module. */
bool djprobe_text_contains(unsigned long addr);

/* The module whose text addr is in; NULL in the kernel proper. */
struct module *djprobe_text_module(const void *addr);

/*
 * Takes a reference to that module, NULL where there is none, or where it is
 * this one, whose exit function unregisters. False where the module is being
 * unloaded.
 */
bool djprobe_text_hold(const void *addr, struct module **module);

/*
 * The kprobe that is armed at addr, NULL if there is none. It may be one that
 * stands for several, or for one that kprobes have prepared an optimisation of.
 */
struct kprobe *djprobe_text_kprobe(void *addr);

/* Whether a registered kprobe has its address for itself. Needs the lock on text. */
bool djprobe_text_is_alone(const struct kprobe *kp);

/* Whether any kprobe, armed or not, is at an address from start to before end. */
bool djprobe_text_is_probed(unsigned long start, unsigned long end);

#endif
