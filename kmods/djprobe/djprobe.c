// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which djprobes are there, and which of them share a jump?
 *
 * A hit calls jump->called. With one djprobe that is the djprobe itself; with
 * several it is jump->shared, whose handler calls theirs, so that only shared
 * jumps pay for sharing. A task that has read the old value may still be on its
 * way from the detour to the handler, even preempted: synchronize_rcu_tasks()
 * waits for it.
 */
#include <linux/errno.h>
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>

#include "djprobe_jump.h"
#include "djprobe_site.h"
#include "function.h"
#include "ksym.h"
#include "ktext.h"
#include "refusal.h"

static DEFINE_MUTEX(djprobe_mutex);

static void call_all(struct djprobe *shared, struct pt_regs *regs)
{
	djprobe_handler *handler;
	struct djprobe *djp;

	/* Preemption is off, which is enough; lockdep would look for rcu_read_lock(). */
	list_for_each_entry_rcu(djp, &shared->jump->probes, list, true) {
		handler = READ_ONCE(djp->handler);
		handler(djp, regs);
	}
}
NOKPROBE_SYMBOL(call_all);

static void join(struct djprobe_jump *jump, struct djprobe *djp)
{
	djp->jump = jump;
	jump->shared.jump = jump;
	jump->shared.handler = call_all;
	list_add_tail_rcu(&djp->list, &jump->probes);
	/* "shared" must be complete before a detour reads its address. */
	smp_store_release(&jump->called, &jump->shared);
}

static void leave(struct djprobe_jump *jump, struct djprobe *djp)
{
	list_del_rcu(&djp->list);
	if (list_is_singular(&jump->probes))
		WRITE_ONCE(jump->called, list_first_entry(&jump->probes, struct djprobe, list));
	/*
	 * The first waits for tasks preempted on their way to the handler, the
	 * second for hits in an interrupt or a breakpoint, which are no tasks.
	 */
	synchronize_rcu_tasks();
	synchronize_rcu();
}

/* A symbol alone is the first instruction that is the function's own. */
static struct refusal resolve(struct djprobe *djp)
{
	unsigned long address = ksym_lookup(djp->symbol);
	struct function function;

	if (!address)
		return REFUSAL(ENOENT, "no such symbol");
	if (!djp->offset && find_function(address, &function) && function.start == address)
		address = function.entry;
	djp->address = (u8 *)address + djp->offset;
	return NO_REFUSAL;
}

static struct refusal attach(struct djprobe *djp)
{
	struct refusal refusal = djp->symbol ? resolve(djp) : NO_REFUSAL;
	struct djprobe_jump *jump;

	if (refusal.err)
		return refusal;
	if (ktext_init() || djprobe_site_init())
		return REFUSAL(EOPNOTSUPP, "this kernel lacks a function that djprobe needs");
	jump = djprobe_jump_at(djp->address);
	if (!jump)
		return djprobe_jump_make(djp);
	join(jump, djp);
	return NO_REFUSAL;
}

/**
 * register_djprobe() - put a jump to a handler in place, or join those that share it
 * @djp: the probe, with its @handler set, and its @symbol and @offset, or @address
 *
 * A symbol without an offset means the function's entry, the first instruction
 * after endbr and the ftrace nop. Handlers at one place are called in the order of
 * registration. The reason of a refusal is in the kernel's log.
 *
 * Context: May sleep for some tenths of a second.
 * Return: 0, or a negative errno:
 *
 * * -ENOENT: no such symbol, or its module is being unloaded
 * * -EINVAL: no place for a jump, or no handler
 * * -EBUSY: another probe is there or has come meanwhile, or @djp is registered
 * * -EAGAIN: kprobes are switched off
 * * -ENOSPC: no detour buffer is free
 * * -ENOMEM: no memory for the kprobe that leads into the detour
 * * -ERANGE: an operand is out of the detour's reach
 * * -EOPNOTSUPP: this kernel lacks something that djprobe needs
 */
int register_djprobe(struct djprobe *djp)
{
	struct refusal refusal;

	mutex_lock(&djprobe_mutex);
	if (djprobe_jump_of(djp))
		refusal = REFUSAL(EBUSY, "this djprobe is registered already");
	else if (!djp->handler)
		refusal = REFUSAL(EINVAL, "a djprobe without a handler");
	else
		refusal = attach(djp);
	mutex_unlock(&djprobe_mutex);

	if (!refusal.err)
		return 0;
	return djp->symbol ? refuse_point(djp->symbol, djp->offset, refusal.err, refusal.reason) :
			     refuse_address(djp->address, refusal.err, refusal.reason);
}

/**
 * unregister_djprobe() - remove a probe, and the jump with the last one that shares it
 * @djp: the probe
 *
 * On return nobody is in the handler of @djp; where the jump is gone, no task and no
 * CPU is in the detour, and the original bytes are back.
 *
 * Context: May sleep for some tenths of a second.
 * Return: 0, or -ENOENT where @djp is not registered.
 */
int unregister_djprobe(struct djprobe *djp)
{
	struct djprobe_jump *jump;
	int err = 0;

	mutex_lock(&djprobe_mutex);
	jump = djprobe_jump_of(djp);
	if (!jump)
		err = -ENOENT;
	else if (list_is_singular(&jump->probes))
		djprobe_jump_remove(jump);
	else
		leave(jump, djp);
	djp->jump = NULL;
	mutex_unlock(&djprobe_mutex);

	return err;
}
