// SPDX-License-Identifier: GPL-2.0-only
/*
 * How is a djprobe's jump written into the kernel's text, and removed again?
 *
 * Five bytes cannot be exchanged at once, and a task may be preempted, or a CPU
 * interrupted, at an instruction in the middle of them. So:
 *
 * In:
 *   1. The detour is written before anything leads to it. Arming the kprobe
 *      makes every CPU serialise, so that none runs a stale copy of it.
 *   2. A kprobe at the entry sends every CPU that comes to it into the detour:
 *      from here on no CPU begins to run the instructions to be replaced.
 *   3. synchronize_rcu_tasks() waits until each task has slept or gone to user
 *      mode once and until each interrupt handler has ended: a task or an
 *      interrupt that was in the middle of those instructions has left them.
 *   4. The jump is written. A CPU that comes by meanwhile meets an int3 and is
 *      sent where the jump leads; one that trapped on the kprobe's int3 just
 *      before finds the kprobe still there.
 * Out:
 *   1. The original bytes are written over the jump, all but the first, which
 *      becomes the kprobe's int3 again. A CPU that comes by still goes into
 *      the detour. None can be inside the five bytes: since step 3 all have
 *      taken the detour, which returns behind them.
 *   2. The kprobe goes, and its int3 with it unless another kprobe has joined
 *      at the same address; unregister_kprobe() waits for its handlers to end.
 *   3. synchronize_rcu_tasks() waits for the tasks preempted in the detour or
 *      on their way to it. Only then may the detour, and this module, be freed.
 */
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/string.h>

#include "djprobe_detour.h"
#include "djprobe_jump.h"
#include "djprobe_site.h"
#include "djprobe_text.h"
#include "ktext.h"
#include "refusal.h"

/* Those with a bypass; writers are serialised, readers have interrupts off. */
static LIST_HEAD(jumps);

static int bypass_hit(struct kprobe *kp, struct pt_regs *regs)
{
	regs->ip = (unsigned long)container_of(kp, struct djprobe_jump, bypass)->detour;
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
	struct djprobe_jump *jump;

	list_for_each_entry_rcu(jump, &jumps, list, true)
		if (jump->bypass.addr == armed->addr)
			regs->ip = (unsigned long)jump->copy;
}
NOKPROBE_SYMBOL(bypass_missed);

static const char *arm_bypass(struct djprobe_jump *jump)
{
	struct kprobe *bypass = &jump->bypass;
	struct kprobe *armed;
	int err;

	bypass->pre_handler = bypass_hit;
	bypass->post_handler = bypass_post;
	err = register_kprobe(bypass);
	if (err)
		return kprobe_refusal(err);
	list_add_rcu(&jump->list, &jumps);
	/* It may be another one than the one just registered, but stays as long as that. */
	armed = djprobe_text_kprobe(bypass->addr);
	jump->emulate_op = armed->ainsn.emulate_op;
	WRITE_ONCE(armed->ainsn.emulate_op, bypass_missed);
	return NULL;
}

/*
 * Needs the original bytes, where single-stepping is right again. Afterwards
 * no CPU is in the detour, nor on the way to it. The armed kprobe may stay, if
 * another user's probe has joined it.
 */
static void drop_bypass(struct djprobe_jump *jump)
{
	struct kprobe *armed = djprobe_text_kprobe(jump->bypass.addr);

	WRITE_ONCE(armed->ainsn.emulate_op, jump->emulate_op);
	unregister_kprobe(&jump->bypass);
	list_del_rcu(&jump->list);
	synchronize_rcu_tasks();
}

static void make_text(const struct djprobe_jump *jump, u8 text[JMP32_INSN_SIZE])
{
	__text_gen_insn(text, JMP32_INSN_OPCODE, jump->bypass.addr, jump->detour, JMP32_INSN_SIZE);
}

/* Whether the probe point is still as it was checked and copied, except for the bypass. */
static bool is_unchanged(const struct djprobe_jump *jump)
{
	const u8 *addr = jump->bypass.addr;

	return addr[0] == INT3_INSN_OPCODE &&
	       !memcmp(addr + 1, jump->original + 1, sizeof(jump->original) - 1) &&
	       !djprobe_text_is_probed((unsigned long)addr + 1, (unsigned long)addr + jump->replaced);
}

/*
 * While the jump is in place, kprobes must take it for the probed instruction:
 * when they are switched off and on as a whole, and when they decode the function
 * to find out where another probe may go.
 */
static const char *write_jump(struct djprobe_jump *jump)
{
	const char *reason = NULL;
	u8 text[JMP32_INSN_SIZE];

	make_text(jump, text);
	ktext_lock();
	if (is_unchanged(jump)) {
		ktext_replace(jump->bypass.addr, text, text);
		djprobe_text_kprobe(jump->bypass.addr)->opcode = JMP32_INSN_OPCODE;
	} else {
		reason = "another probe came meanwhile, or kprobes are switched off";
	}
	ktext_unlock();
	return reason;
}

/* Leaves the int3, which a kprobe that has joined needs; it goes with the last kprobe. */
static void write_original(struct djprobe_jump *jump)
{
	u8 text[JMP32_INSN_SIZE], original[JMP32_INSN_SIZE];

	make_text(jump, text);
	memcpy(original, jump->original, sizeof(original));
	original[0] = INT3_INSN_OPCODE;
	ktext_lock();
	ktext_replace(jump->bypass.addr, original, text);
	djprobe_text_kprobe(jump->bypass.addr)->opcode = jump->original[0];
	ktext_unlock();
}

static const char *install(struct djprobe_jump *jump)
{
	const char *reason = arm_bypass(jump);

	if (reason)
		return reason;
	synchronize_rcu_tasks();
	reason = write_jump(jump);
	if (reason)
		drop_bypass(jump);
	return reason;
}

/* A module that is being unloaded gives no reference; this one needs none, as its exit function unregisters. */
static const char *hold_module(struct djprobe_jump *jump, u8 *address)
{
	struct module *module = djprobe_text_module(address);

	if (module == THIS_MODULE)
		return NULL;
	if (module && !try_module_get(module))
		return "the module is being unloaded";
	jump->module = module;
	return NULL;
}

static const char *make(struct djprobe_jump *jump, u8 *address)
{
	const char *reason = djprobe_site_refusal((unsigned long)address, &jump->replaced);

	if (reason)
		return reason;
	memcpy(jump->original, address, sizeof(jump->original));
	jump->bypass.addr = address;
	reason = djprobe_detour_build(jump);
	if (reason)
		return reason;
	reason = install(jump);
	if (reason)
		djprobe_detour_free(jump);
	return reason;
}

const char *djprobe_jump_make(struct djprobe *djp)
{
	struct djprobe_jump *jump = djprobe_detour_jump();
	const char *reason;

	if (!jump)
		return "no detour buffer is free";
	*jump = (struct djprobe_jump){ .called = djp };
	INIT_LIST_HEAD(&jump->probes);
	list_add(&djp->list, &jump->probes);
	djp->jump = jump;

	reason = hold_module(jump, djp->address);
	if (reason)
		return reason;
	reason = make(jump, djp->address);
	if (reason)
		module_put(jump->module);
	return reason;
}

void djprobe_jump_remove(struct djprobe_jump *jump)
{
	write_original(jump);
	drop_bypass(jump);
	djprobe_detour_free(jump);
	module_put(jump->module);
}

struct djprobe_jump *djprobe_jump_at(const u8 *address)
{
	struct djprobe_jump *jump;

	list_for_each_entry(jump, &jumps, list)
		if (jump->bypass.addr == address)
			return jump;
	return NULL;
}
