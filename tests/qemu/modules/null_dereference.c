// SPDX-License-Identifier: GPL-2.0-only
/* An oops that the kernel survives: insmod dies of it. */
#include <linux/module.h>

static int *volatile nowhere;

static int __init null_dereference_init(void)
{
	return *nowhere;
}

module_init(null_dereference_init);
MODULE_DESCRIPTION("Reads through a null pointer");
MODULE_LICENSE("GPL");
