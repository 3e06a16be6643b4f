/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does an fprobe call? Since Linux 6.4 the handler at the entry returns
 * whether to leave the return alone (commit 39d954200bf6), and since 6.5 both are
 * passed the return address (cb16330d1274).
 */
#ifndef LAB_FPROBE_HANDLERS_H
#define LAB_FPROBE_HANDLERS_H

#include <linux/fprobe.h>
#include <linux/kprobes.h>
#include <linux/version.h>

/* A handler at the entry, and one at the return, that does "body(regs)": inline, so that nothing else is measured. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
#define FPROBE_ENTRY(name, body)								\
static int name(struct fprobe *fp, unsigned long ip, unsigned long caller, struct pt_regs *regs, void *data) \
{												\
	body(regs);										\
	return 0;										\
}												\
NOKPROBE_SYMBOL(name)
#define FPROBE_EXIT(name, body)									\
static void name(struct fprobe *fp, unsigned long ip, unsigned long caller, struct pt_regs *regs, void *data) \
{												\
	body(regs);										\
}												\
NOKPROBE_SYMBOL(name)
#else
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
#define FPROBE_ENTRY(name, body)								\
static int name(struct fprobe *fp, unsigned long ip, struct pt_regs *regs, void *data)		\
{												\
	body(regs);										\
	return 0;										\
}												\
NOKPROBE_SYMBOL(name)
#else
#define FPROBE_ENTRY(name, body)	FPROBE_EXIT(name, body)
#endif
#define FPROBE_EXIT(name, body)									\
static void name(struct fprobe *fp, unsigned long ip, struct pt_regs *regs, void *data)	\
{												\
	body(regs);										\
}												\
NOKPROBE_SYMBOL(name)
#endif

#endif
