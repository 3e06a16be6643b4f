/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does an fprobe call? Since Linux 6.4 the handler at the entry returns
 * whether to leave the return alone (commit 39d954200bf6), since 6.5 both are
 * passed the return address (cb16330d1274), and since 6.14 they get the registers
 * of the function graph tracer, which keeps account of the calls (4346ba160409).
 */
#ifndef LAB_FPROBE_HANDLERS_H
#define LAB_FPROBE_HANDLERS_H

#include <linux/fprobe.h>
#include <linux/kprobes.h>
#include <linux/version.h>

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 14, 0)
/* Of the registers those of arguments, or of the return value, are there, and no instruction pointer. */
#define FPROBE_PASSED							\
	struct fprobe *fp, unsigned long ip, unsigned long caller, struct ftrace_regs *fregs, void *data
#define FPROBE_BODY(body)	body(&arch_ftrace_regs(fregs)->regs, caller)
#define FPROBE_CALLS(number)
#else
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#define FPROBE_PASSED							\
	struct fprobe *fp, unsigned long ip, unsigned long caller, struct pt_regs *regs, void *data
#else
#define FPROBE_PASSED		struct fprobe *fp, unsigned long ip, struct pt_regs *regs, void *data
#endif
/* At a return the hook has put the return address there (rethook_trampoline_handler()). */
#define FPROBE_BODY(body)	body(regs, instruction_pointer(regs))
/* How many calls may be in progress at once whose return is hooked. */
#define FPROBE_CALLS(number)	.nr_maxactive = number,
#endif

/*
 * A handler at the entry, and one at the return, that does "body(regs, caller)": inline, so that nothing else is
 * measured. The caller is known at the return alone.
 */
#define FPROBE_EXIT(name, body)		\
static void name(FPROBE_PASSED)		\
{					\
	FPROBE_BODY(body);		\
}					\
NOKPROBE_SYMBOL(name)

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define FPROBE_ENTRY(name, body)	\
static int name(FPROBE_PASSED)		\
{					\
	FPROBE_BODY(body);		\
	return 0;			\
}					\
NOKPROBE_SYMBOL(name)
#else
#define FPROBE_ENTRY(name, body)	FPROBE_EXIT(name, body)
#endif

#endif
