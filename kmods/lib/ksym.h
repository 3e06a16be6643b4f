/* SPDX-License-Identifier: GPL-2.0-only */
/* Where is a kernel function or object that is not exported to modules? */
#ifndef LAB_KSYM_H
#define LAB_KSYM_H

/*
 * The address of a kernel symbol by its name in kallsyms, 0 where this kernel
 * has none. Data objects are found only on kernels with CONFIG_KALLSYMS_ALL.
 * May sleep.
 */
unsigned long ksym_lookup(const char *name);

/* The same, typed like the symbol's own declaration; NULL where there is none. */
#define KSYM(name) ((typeof(&(name)))ksym_lookup(#name))

#endif
