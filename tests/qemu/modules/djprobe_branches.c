// SPDX-License-Identifier: GPL-2.0-only
/* What functions begin with something that the kernel itself patches? */
#include <linux/jump_label.h>
#include <linux/kprobes.h>
#include <linux/static_call.h>

#include "djprobe_trial.h"

const long djprobe_constant = 0x20050713;
int djprobe_counter;

NOKPROBE_SYMBOL(djprobe_shape_blacklisted);

static DEFINE_STATIC_KEY_FALSE(taken);

long djprobe_shape_label(long argument)
{
	return static_branch_unlikely(&taken) ? argument + 2 : argument + 1;
}

static void never(void)
{
}
DEFINE_STATIC_CALL_NULL(unset, never);

/* An unset static call is a no-op, which could be moved. */
long djprobe_shape_static_call(long argument)
{
	static_call_cond(unset)();
	return argument + djprobe_counter;
}
