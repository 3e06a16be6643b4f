// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which functions has marker.ko for other modules? Built by Kbuild alone: the
 * lab's modules each have the implementation within them, and export nothing.
 */
#include <linux/module.h>

#include "marker.h"

EXPORT_SYMBOL_GPL(marker_connect);
EXPORT_SYMBOL_GPL(marker_disconnect);
EXPORT_SYMBOL_GPL(marker_list);
/* What a marker calls while nothing is connected. */
EXPORT_SYMBOL_GPL(marker_no_probe);

MODULE_DESCRIPTION("The kernel markers of 2006");
MODULE_LICENSE("GPL");
