/* SPDX-License-Identifier: GPL-2.0-only */
/* Which function does an address lie in, and where is that function's entry? */
#ifndef LAB_FUNCTION_H
#define LAB_FUNCTION_H

#include <linux/types.h>

struct function {
	unsigned long start;
	unsigned long end;	/* first byte behind it, padding included */
	unsigned long entry;	/* first instruction after endbr and the ftrace nop */
};

/* False where kallsyms has no function at the address. May sleep. */
bool find_function(unsigned long address, struct function *function);

#endif
