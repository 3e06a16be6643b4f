/* SPDX-License-Identifier: GPL-2.0-only */
/* What can a handler check, so that only what it was right about counts as a hit? */
#ifndef LAB_CAPABILITY_H
#define LAB_CAPABILITY_H

#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/types.h>

#include "report.h"

/* Finds the kernel's text; -EOPNOTSUPP where it is not told. May sleep. */
int capability_init(void);

/* The report's: counts or does not; there is nothing to record. */
int capability_select_handler(enum handler handler);

/* Counts a hit, if hits are counted now and it was right. */
void capability_seen(bool right);

/* Whether the stack's top is a return address: nothing of the function has run. */
bool capability_is_return_address(unsigned long address);

/* The probed function's only parameter, where a system call's wrapper has it. */
static __always_inline unsigned long capability_parameter(const struct pt_regs *regs)
{
#ifdef CONFIG_X86_32
	return regs->ax;
#else
	return regs->di;
#endif
}

/* Whether it is what the wrapper is called with: the user's registers. */
static __always_inline bool capability_is_user_registers(unsigned long parameter)
{
	return parameter == (unsigned long)current_pt_regs();
}

#endif
