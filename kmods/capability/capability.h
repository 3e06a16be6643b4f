/* SPDX-License-Identifier: GPL-2.0-only */
/* How does a handler count a hit only if it saw what it must see? */
#ifndef LAB_CAPABILITY_H
#define LAB_CAPABILITY_H

#include <linux/ptrace.h>
#include <linux/sched/task_stack.h>
#include <linux/types.h>

#include "report.h"

/* Finds the kernel's text; -EOPNOTSUPP where kallsyms has no _stext or _etext. May sleep. */
int capability_init(void);

/* For struct report: noop or count; -EOPNOTSUPP for record, as there is nothing to record. */
int capability_select_handler(enum handler handler);

/* Counts a hit if it was right and the count handler is selected. */
void capability_seen(bool right);

/* Whether the top of the stack is a return address, so that nothing of the function has run yet. */
bool capability_is_return_address(unsigned long address);

/* The first parameter of the probed function, a system call's wrapper. */
static __always_inline unsigned long capability_parameter(const struct pt_regs *regs)
{
#ifdef CONFIG_X86_32
	return regs->ax;
#else
	return regs->di;
#endif
}

/* Whether it is what a wrapper is called with: the user's registers. */
static __always_inline bool capability_is_user_registers(unsigned long parameter)
{
	return parameter == (unsigned long)current_pt_regs();
}

#endif
