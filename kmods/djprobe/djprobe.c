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
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>

#include "djprobe_jump.h"
#include "djprobe_site.h"
#include "ksym.h"
#include "ktext.h"
#include "refusal.h"

static DEFINE_MUTEX(djprobe_mutex);

static void call_all(struct djprobe *shared, struct pt_regs *regs)
{
	struct djprobe *djp;

	/* Preemption is off, which is enough; lockdep would look for rcu_read_lock(). */
	list_for_each_entry_rcu(djp, &shared->jump->probes, list, true)
		READ_ONCE(djp->handler)(djp, regs);
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

static const char *attach(struct djprobe *djp)
{
	struct djprobe_jump *jump;

	if (ktext_init() || djprobe_site_init())
		return "this kernel lacks a function that djprobe needs";
	jump = djprobe_jump_at(djp->address);
	if (!jump)
		return djprobe_jump_make(djp);
	join(jump, djp);
	return NULL;
}

int register_djprobe(struct djprobe *djp)
{
	const char *reason;

	if (djp->symbol) {
		unsigned long address = ksym_lookup(djp->symbol);

		if (!address)
			return refuse(djp->symbol, djp->offset, -ENOENT, "no such symbol");
		djp->address = (u8 *)address + djp->offset;
	}

	mutex_lock(&djprobe_mutex);
	reason = attach(djp);
	mutex_unlock(&djprobe_mutex);

	if (!reason)
		return 0;
	return djp->symbol ? refuse(djp->symbol, djp->offset, -EINVAL, reason) :
			     refuse_address(djp->address, -EINVAL, reason);
}

void unregister_djprobe(struct djprobe *djp)
{
	struct djprobe_jump *jump = djp->jump;

	mutex_lock(&djprobe_mutex);
	if (list_is_singular(&jump->probes))
		djprobe_jump_remove(jump);
	else
		leave(jump, djp);
	mutex_unlock(&djprobe_mutex);
}
