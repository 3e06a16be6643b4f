/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How are hooks of returns made, and handled? Linux 6.5 passes handlers the return
 * address (commit cb16330d1274), and 6.7 makes the nodes itself (4bbd93455659).
 */
#ifndef LAB_RETURN_HOOKS_H
#define LAB_RETURN_HOOKS_H

#include <linux/err.h>
#include <linux/kprobes.h>
#include <linux/rethook.h>
#include <linux/slab.h>
#include <linux/version.h>

#include "ksym.h"

typedef void return_handler(struct rethook_node *node, struct pt_regs *regs);

/* What the hooks of the one module that includes this do at a return. */
static return_handler *on_return;

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
static void returned(struct rethook_node *node, void *data, unsigned long return_address, struct pt_regs *regs)
#else
static void returned(struct rethook_node *node, void *data, struct pt_regs *regs)
#endif
{
	READ_ONCE(on_return)(node, regs);
}
NOKPROBE_SYMBOL(returned);

/* None of these is exported. */
struct return_hooks {
	typeof(rethook_alloc) *alloc;
	typeof(rethook_free) *free;
	typeof(rethook_try_get) *try_get;
	typeof(rethook_hook) *hook;
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
	typeof(rethook_add_node) *add_node;
#endif
};

static inline bool find_return_hooks(struct return_hooks *hooks)
{
	hooks->alloc = KSYM(rethook_alloc);
	hooks->free = KSYM(rethook_free);
	hooks->try_get = KSYM(rethook_try_get);
	hooks->hook = KSYM(rethook_hook);
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 7, 0)
	hooks->add_node = KSYM(rethook_add_node);
	if (!hooks->add_node)
		return false;
#endif
	return hooks->alloc && hooks->free && hooks->try_get && hooks->hook;
}

/* For so many calls in progress at once. NULL without memory. What the hook owns is freed with it. */
static inline struct rethook *make_return_hook(const struct return_hooks *hooks, return_handler *handler, int calls)
{
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 7, 0)
	struct rethook *hook = hooks->alloc(&on_return, returned, sizeof(struct rethook_node), calls);

	on_return = handler;
	return IS_ERR(hook) ? NULL : hook;
#else
	struct rethook *hook = hooks->alloc(&on_return, returned);
	int i;

	on_return = handler;
	for (i = 0; hook && i < calls; i++) {
		struct rethook_node *node = kzalloc(sizeof(*node), GFP_KERNEL);

		if (!node) {
			hooks->free(hook);
			return NULL;
		}
		hooks->add_node(hook, node);
	}
	return hook;
#endif
}

#endif
