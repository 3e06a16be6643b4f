// SPDX-License-Identifier: GPL-2.0-only
/* Does the compiler notice a marker that is passed other arguments than its format requires? */
#include <linux/module.h>

#include "marker.h"

MARKERS(misfit_markers);

#pragma GCC diagnostic error "-Wformat"

void misfit(long number);

void misfit(long number)
{
	MARK(misfit_marker, "%s", number);
}

MODULE_DESCRIPTION("A marker that does not fit its format");
MODULE_LICENSE("GPL");
