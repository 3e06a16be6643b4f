// SPDX-License-Identifier: GPL-2.0-only
/*
 * How does a djprobe's jump come into the kernel's text, and out of it again?
 *
 * Five bytes cannot be exchanged at once, and a task may be preempted, or a CPU
 * interrupted, at an instruction in the middle of them. So:
 *
 * In:
 *   1. The detour is written before anything leads to it. Arming the kprobe
 *      makes every CPU serialise, so that none runs a stale copy of it.
 *   2. A kprobe at the entry sends every CPU that comes to it into the detour:
 *      from here on nobody new runs the instructions to be replaced.
 *   3. synchronize_rcu_tasks() waits until each task has slept or gone to user
 *      mode once and until each interrupt handler has ended: whoever was in
 *      the middle of those instructions has left them.
 *   4. The jump is written. A CPU that comes by meanwhile meets an int3 and is
 *      sent where the jump leads; one that trapped on the kprobe's int3 just
 *      before finds the kprobe still there.
 * Out:
 *   1. The original bytes are written over the jump. A CPU that comes by
 *      meanwhile still goes into the detour. Nobody can be inside the five
 *      bytes: since step 3 all went by the detour, which returns behind them.
 *   2. The kprobe goes; unregister_kprobe() waits for its handlers to end.
 *   3. synchronize_rcu_tasks() waits for the tasks preempted in the detour or
 *      on their way to it. Only then may the detour, and this module, be freed.
 */
#include <linux/mutex.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/string.h>

#include "djprobe.h"
#include "djprobe_detour.h"
#include "djprobe_site.h"
#include "ksym.h"
#include "ktext.h"
#include "refusal.h"

static DEFINE_MUTEX(djprobe_mutex);
/* Those with a bypass; written under the mutex, read with interrupts off. */
static LIST_HEAD(djprobes);

static int bypass_hit(struct kprobe *kp, struct pt_regs *regs)
{
	regs->ip = (unsigned long)container_of(kp, struct djprobe, bypass)->detour;
	return 1;
}
NOKPROBE_SYMBOL(bypass_hit);

/* Without a post-handler kprobes would make a jump of their own out of the bypass. */
static void bypass_post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(bypass_post);

/*
 * Where a hit falls into another kprobe's handling, kprobes call no handler
 * and would single-step: back into the bytes that are being replaced. Instead
 * the rest of the detour is run; the hit is one of those counted as missed.
 */
static void bypass_missed(struct kprobe *armed, struct pt_regs *regs)
{
	struct djprobe *djp;

	list_for_each_entry_rcu(djp, &djprobes, list, true)
		if (djp->bypass.addr == armed->addr)
			regs->ip = (unsigned long)djp->copy;
}
NOKPROBE_SYMBOL(bypass_missed);

static const char *arm_bypass(struct djprobe *djp)
{
	struct kprobe *bypass = &djp->bypass;
	struct kprobe *armed;
	int err;

	bypass->pre_handler = bypass_hit;
	bypass->post_handler = bypass_post;
	err = register_kprobe(bypass);
	if (err)
		return kprobe_refusal(err);
	list_add_rcu(&djp->list, &djprobes);
	/* Not necessarily the one just registered, but it stays as long as that does. */
	armed = djprobe_site_kprobe(bypass->addr);
	djp->emulate_op = armed->ainsn.emulate_op;
	WRITE_ONCE(armed->ainsn.emulate_op, bypass_missed);
	return NULL;
}

/*
 * Needs the original bytes, where single-stepping is right again. Afterwards
 * nobody is in the detour, nor on the way to it. What kprobes have armed may
 * live on, if somebody else's probe has joined it.
 */
static void drop_bypass(struct djprobe *djp)
{
	struct kprobe *armed = djprobe_site_kprobe(djp->bypass.addr);

	WRITE_ONCE(armed->ainsn.emulate_op, djp->emulate_op);
	unregister_kprobe(&djp->bypass);
	list_del_rcu(&djp->list);
	synchronize_rcu_tasks();
}

static void make_jump(const struct djprobe *djp, u8 jump[JMP32_INSN_SIZE])
{
	__text_gen_insn(jump, JMP32_INSN_OPCODE, djp->bypass.addr, djp->detour, JMP32_INSN_SIZE);
}

/* Whether the probe point is still as it was checked and copied, but for the bypass. */
static bool is_unchanged(const struct djprobe *djp)
{
	const u8 *addr = djp->bypass.addr;

	return addr[0] == INT3_INSN_OPCODE &&
	       !memcmp(addr + 1, djp->original + 1, sizeof(djp->original) - 1) &&
	       !djprobe_site_probed((unsigned long)addr + 1, (unsigned long)addr + djp->replaced);
}

/*
 * While the jump is in place it is what kprobes must take for the probed
 * instruction: when they are switched off and on as a whole, and when they
 * decode the function to find out where another probe may go.
 */
static const char *write_jump(struct djprobe *djp)
{
	const char *reason = NULL;
	u8 jump[JMP32_INSN_SIZE];

	make_jump(djp, jump);
	ktext_lock();
	if (is_unchanged(djp)) {
		ktext_replace(djp->bypass.addr, jump, jump);
		djprobe_site_kprobe(djp->bypass.addr)->opcode = JMP32_INSN_OPCODE;
	} else {
		reason = "another probe came meanwhile, or kprobes are switched off";
	}
	ktext_unlock();
	return reason;
}

static void write_original(struct djprobe *djp)
{
	u8 jump[JMP32_INSN_SIZE];

	make_jump(djp, jump);
	ktext_lock();
	ktext_replace(djp->bypass.addr, djp->original, jump);
	djprobe_site_kprobe(djp->bypass.addr)->opcode = djp->original[0];
	ktext_unlock();
}

static const char *install(struct djprobe *djp)
{
	const char *reason;

	reason = djprobe_site_refusal((unsigned long)djp->bypass.addr, &djp->replaced);
	if (reason)
		return reason;
	memcpy(djp->original, djp->bypass.addr, sizeof(djp->original));
	reason = djprobe_detour_build(djp);
	if (reason)
		return reason;

	reason = arm_bypass(djp);
	if (!reason) {
		synchronize_rcu_tasks();
		reason = write_jump(djp);
		if (reason)
			drop_bypass(djp);
	}
	if (reason)
		djprobe_detour_free(djp);
	return reason;
}

int register_djprobe(struct djprobe *djp)
{
	unsigned long address = ksym_lookup(djp->symbol);
	const char *reason;

	if (!address)
		return refuse(djp->symbol, djp->offset, -ENOENT, "no such symbol");
	djp->bypass = (struct kprobe){ .addr = (kprobe_opcode_t *)(address + djp->offset) };

	mutex_lock(&djprobe_mutex);
	if (ktext_init() || djprobe_site_init())
		reason = "this kernel lacks a function that djprobe needs";
	else
		reason = install(djp);
	mutex_unlock(&djprobe_mutex);

	return reason ? refuse(djp->symbol, djp->offset, -EINVAL, reason) : 0;
}

void unregister_djprobe(struct djprobe *djp)
{
	mutex_lock(&djprobe_mutex);
	write_original(djp);
	drop_bypass(djp);
	djprobe_detour_free(djp);
	mutex_unlock(&djprobe_mutex);
}
