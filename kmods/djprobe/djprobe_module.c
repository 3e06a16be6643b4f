// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which functions has djprobe.ko for other modules? Built by Kbuild alone: the
 * lab's modules each have the implementation within them, and export nothing.
 */
#include <linux/module.h>

#include "djprobe.h"

EXPORT_SYMBOL_GPL(register_djprobe);
EXPORT_SYMBOL_GPL(unregister_djprobe);

MODULE_DESCRIPTION("The direct jump probe of 2005");
MODULE_LICENSE("GPL");
