// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>
#include "../below.h"

int below(void)
{
	return BELOW;
}
EXPORT_SYMBOL_GPL(below);

MODULE_DESCRIPTION("Exports a function");
MODULE_LICENSE("GPL");
