// SPDX-License-Identifier: GPL-2.0-only
#include <linux/module.h>

#include "ordinary_work.h"

void ordinary_work(int size)
{
	while (size--)
		asm volatile("nop");
}
EXPORT_SYMBOL_GPL(ordinary_work);

MODULE_LICENSE("GPL");
