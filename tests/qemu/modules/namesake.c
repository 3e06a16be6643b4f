// SPDX-License-Identifier: GPL-2.0-only
/* Has functions with the names of the kernel's own; the compiler does not see those names. */
#include <linux/module.h>

static noinline void first(void) __asm__("__x64_sys_gettimeofday");
static noinline void first(void)
{
	barrier();
}

static noinline void second(void) __asm__("vfs_read");
static noinline void second(void)
{
	barrier();
}

static int __init namesake_init(void)
{
	first();
	second();
	return 0;
}

static void __exit namesake_exit(void)
{
}

module_init(namesake_init);
module_exit(namesake_exit);
MODULE_DESCRIPTION("Functions with the names of the kernel's own");
MODULE_LICENSE("GPL");
