/* SPDX-License-Identifier: GPL-2.0-only */
/* Which kprobes come, go, and are hit, through the function tracer and beside it? */
#ifndef TRACED_KPROBES_H
#define TRACED_KPROBES_H

#include <linux/types.h>

/* The first kprobe, the one that comes after it, and as many as a list's cache has entries. */
enum { FIRST, SECOND, OTHERS, OTHERS_END = OTHERS + 4 };

/* At a function's entry. -EOPNOTSUPP where that does not go through the function tracer. */
int put_traced(int number, void (*function)(void));
/* At a function's entry, by a breakpoint where that does not go through the function tracer. */
int put_single_stepped(int number, void (*function)(void));
/* The others, into the function's list of the kernel's hash; run_others() hits each once. */
int put_others(void (*function)(void));
void run_others(void *unused);
void take(int number);
void take_all(void);
/* Out of the kernel's hash, whether or not its unregistration has come to its end. */
bool is_removed(int number);

/* A line for each kprobe: hits at its own address, and at another one, since the last reset. */
int tell_hits(char *page);
void reset_hits(void);

#endif
