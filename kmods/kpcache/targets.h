/* SPDX-License-Identifier: GPL-2.0-only */
/* Which functions does only the module call? */
#ifndef LAB_TARGETS_H
#define LAB_TARGETS_H

#define TARGETS	64

/* They do nothing, and begin as the kernel's own functions do: with the function tracer's nop, if it is configured. */
extern void (*const targets[TARGETS])(void);

#endif
