/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where may something happen while a djprobe's jump is made? Included before
 * djprobe_jump.c: "copy" is between the check of a place and the copying of its
 * instructions, "grace" right before the wait for other tasks.
 */
#ifndef DJPROBE_WINDOWS_H
#define DJPROBE_WINDOWS_H

#include <linux/rcupdate.h>

#include "djprobe_detour.h"
#include "window.h"

static inline void djprobe_window_grace(void)
{
	window_open("grace");
	synchronize_rcu_tasks();
}

#undef synchronize_rcu_tasks
#define synchronize_rcu_tasks djprobe_window_grace

#define djprobe_detour_build(jump) ({	\
	window_open("copy");		\
	djprobe_detour_build(jump);	\
})

#endif
