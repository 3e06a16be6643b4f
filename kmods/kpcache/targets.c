// SPDX-License-Identifier: GPL-2.0-only
/* Which functions does only the module call? */
#include <linux/compiler.h>

#include "targets.h"

/* The number makes the functions differ, so that the compiler does not merge them. */
#define TARGET(n)	static noinline void target_##n(void) { asm volatile("nop" : : "i" (0##n)); }
#define NAME(n)		target_##n,
#define EIGHT(of, n)	of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7)
#define ALL(of)		EIGHT(of, 0) EIGHT(of, 1) EIGHT(of, 2) EIGHT(of, 3) \
			EIGHT(of, 4) EIGHT(of, 5) EIGHT(of, 6) EIGHT(of, 7)

ALL(TARGET)

void (*const targets[TARGETS])(void) = { ALL(NAME) };
