// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which functions has jprobe.ko for other modules? Built by Kbuild alone: the
 * lab's modules each have the implementation within them, and export nothing.
 */
#include <linux/module.h>

#include "jprobe.h"

EXPORT_SYMBOL_GPL(register_jprobe);
EXPORT_SYMBOL_GPL(unregister_jprobe);
/* What jprobe_return() calls. */
EXPORT_SYMBOL_GPL(jprobe_exit);

MODULE_DESCRIPTION("The jprobe that Linux 4.15 removed");
MODULE_LICENSE("GPL");
