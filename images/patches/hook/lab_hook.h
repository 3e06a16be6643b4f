/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A static hook at the entry of every system call, as the kernel state tracers
 * of 2005 had it: one load, one test and one branch that is not taken while
 * nobody is hooked in.
 */
#ifndef _LINUX_LAB_HOOK_H
#define _LINUX_LAB_HOOK_H

#include <linux/compiler.h>
#include <linux/ptrace.h>

#ifdef CONFIG_LAB_SYSCALL_HOOK

/*
 * Called right before a system call is dispatched, with interrupts and
 * preemption as the system call has them: on. regs->orig_ax is its number.
 * Who sets it must set it back to NULL, and wait for all tasks to have left it
 * (synchronize_rcu() for a hook that disables preemption, and
 * synchronize_rcu_tasks() for the way into it), before its code goes away.
 */
extern void (*lab_syscall_hook)(const struct pt_regs *regs);

static __always_inline void lab_syscall_entry(const struct pt_regs *regs)
{
	void (*hook)(const struct pt_regs *regs) = READ_ONCE(lab_syscall_hook);

	if (unlikely(hook))
		hook(regs);
}

#else

static __always_inline void lab_syscall_entry(const struct pt_regs *regs)
{
}

#endif

#endif
