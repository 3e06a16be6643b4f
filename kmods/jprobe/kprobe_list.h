/* SPDX-License-Identifier: GPL-2.0-only */
/* Which of the kernel's lists of kprobes is searched for an address? */
#ifndef LAB_KPROBE_LIST_H
#define LAB_KPROBE_LIST_H

#include <linux/hash.h>

/* KPROBE_HASH_BITS of kernel/kprobes.c: an option only with kprobe-hash-bits.patch. */
#ifdef CONFIG_KPROBE_HASH_BITS
#define KPROBE_LIST_BITS CONFIG_KPROBE_HASH_BITS
#else
#define KPROBE_LIST_BITS 6
#endif

/* As get_kprobe() picks it, for every int3 of the kernel's. */
static inline u32 kprobe_list(const void *address)
{
	return hash_ptr(address, KPROBE_LIST_BITS);
}

#endif
