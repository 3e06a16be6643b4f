// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include "../below.h"

static int __init user_init(void)
{
	return below() - BELOW;
}

module_init(user_init);
MODULE_DESCRIPTION("Calls a function of another module");
MODULE_LICENSE("GPL");
