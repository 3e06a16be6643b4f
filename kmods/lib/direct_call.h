/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How is a function made to call a trampoline directly, without the function
 * tracer's own code? Up to Linux 6.3 the kernel takes the place itself, from 6.4 on
 * a filter of places (commits 8788ca164eb4 and da8bdfbd4223).
 */
#ifndef LAB_DIRECT_CALL_H
#define LAB_DIRECT_CALL_H

#include <linux/ftrace.h>
#include <linux/version.h>

struct direct_call {
	unsigned long place;		/* the tracer's nop */
	unsigned long trampoline;
	struct ftrace_ops ops;		/* not used before 6.4 */
};

/*
 * 0 or a negative errno: -EBUSY where the place has a direct call already, -ENODEV
 * where the tracer has no such place.
 */
static inline int direct_call_make(struct direct_call *call)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	int err = ftrace_set_filter_ip(&call->ops, call->place, 0, 0);

	if (err)
		return err == -EINVAL ? -ENODEV : err;
	err = register_ftrace_direct(&call->ops, call->trampoline);
	if (err)
		ftrace_free_filter(&call->ops);
	return err;
#else
	return register_ftrace_direct(call->place, call->trampoline);
#endif
}

/* Leads the call to another trampoline. 0 or a negative errno, which leaves it where it is. */
static inline int direct_call_lead(struct direct_call *call, unsigned long trampoline)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	int err = modify_ftrace_direct(&call->ops, trampoline);
#else
	int err = modify_ftrace_direct(call->place, call->trampoline, trampoline);
#endif

	if (!err)
		call->trampoline = trampoline;
	return err;
}

/* Puts the nop back. A CPU may still be in the trampoline. */
static inline void direct_call_end(struct direct_call *call)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 4, 0)
	unregister_ftrace_direct(&call->ops, call->trampoline, true);
#else
	unregister_ftrace_direct(call->place, call->trampoline);
#endif
}

#endif
