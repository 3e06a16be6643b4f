/* SPDX-License-Identifier: GPL-2.0-only */
/* Where is a kernel function or object that is not exported to modules? */
#ifndef LAB_KSYM_H
#define LAB_KSYM_H

#include <linux/kconfig.h>
#include <linux/types.h>
#include <linux/version.h>

/*
 * The address of a kernel symbol by its name in kallsyms, 0 where this kernel
 * has none. Data objects are found only on kernels with CONFIG_KALLSYMS_ALL.
 * May sleep.
 */
unsigned long ksym_lookup(const char *name);

/* The same, typed like the symbol's own declaration; NULL where there is none. */
#define KSYM(name) ((typeof(&(name)))ksym_lookup(#name))

#if LINUX_VERSION_CODE < KERNEL_VERSION(5, 18, 0)
/* Before commit 0e06b4037168 a module that needs it defines it; kallsyms has the symbols of modules, too. */
void *text_poke_copy(void *addr, const void *text, size_t size);
#endif

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

#endif
