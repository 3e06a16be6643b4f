// SPDX-License-Identifier: GPL-2.0-only
// A module that refuses to load, with a reason in the log.
#include <linux/module.h>

static int __init broken_init(void)
{
	pr_err("broken: there is nothing to look at\n");
	return -ENODEV;
}
module_init(broken_init);
MODULE_LICENSE("GPL");
