// SPDX-License-Identifier: GPL-2.0-only
// A module that does nothing.
#include <linux/module.h>

static int __init idle_init(void)
{
	return 0;
}
module_init(idle_init);

static void __exit idle_exit(void)
{
}
module_exit(idle_exit);
MODULE_LICENSE("GPL");
