/* SPDX-License-Identifier: GPL-2.0-only */
/* Which functions are there that nobody but the module calls? */
#ifndef LAB_TARGETS_H
#define LAB_TARGETS_H

#define TARGETS	64

/* They do nothing, and begin as the kernel's own functions do: with the function tracer's nop, where it has one. */
extern void (*const targets[TARGETS])(void);

#endif
