// SPDX-License-Identifier: GPL-2.0-only
// What kbuild takes: parts in folders, flags of one file and of all, assembly, a generated header, a tracepoint's header.
#include <linux/module.h>
#include <whole.h>
#include "made.h"
#define CREATE_TRACE_POINTS
#include "whole_trace.h"

static int __init whole_init(void)
{
	trace_whole_loaded(sum(ROUNDS, MADE) + HAS_MODULES + first_number());
	return 0;
}

static void __exit whole_exit(void)
{
}

module_init(whole_init);
module_exit(whole_exit);
MODULE_DESCRIPTION("A module of many forms");
MODULE_LICENSE("GPL");
