// SPDX-License-Identifier: GPL-2.0-only
/* A warning with a stack trace, after which everything goes on. */
#include <linux/module.h>

static int __init warning_init(void)
{
	WARN(true, "this is only a test");
	return 0;
}

static void __exit warning_exit(void)
{
}

module_init(warning_init);
module_exit(warning_exit);
MODULE_DESCRIPTION("Warns, and is loaded");
MODULE_LICENSE("GPL");
