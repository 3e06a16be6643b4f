/* SPDX-License-Identifier: GPL-2.0-only */
/* Which function does an address lie in, and where is that function's entry? */
#ifndef LAB_FUNCTION_H
#define LAB_FUNCTION_H

#include <linux/kconfig.h>
#include <linux/types.h>

struct function {
	unsigned long start;
	unsigned long end;	/* first byte behind it, padding included */
	unsigned long entry;	/* first instruction after endbr and the ftrace nop */
};

/*
 * Whether an endbr is at the address, or what the kernel puts over one that nothing jumps to. By its bytes: is_endbr()
 * takes them up to Linux 6.15, and a pointer to them from then on.
 */
static inline bool endbr_at(unsigned long address)
{
	u32 code = *(const u32 *)address;

	return IS_ENABLED(CONFIG_X86_KERNEL_IBT) &&
	       (code == 0xfa1e0ff3 || code == 0xfb1e0ff3 || code == 0x001f0f66 || code == 0xd6401f0f);
}

/* False where kallsyms has no function at the address. May sleep. */
bool find_function(unsigned long address, struct function *function);

#endif
