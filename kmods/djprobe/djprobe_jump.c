// SPDX-License-Identifier: GPL-2.0-only
/*
 * How is a djprobe's jump written into the kernel's text, and removed again?
 *
 * Five bytes cannot be exchanged at once, and a task may be preempted, or a CPU
 * interrupted, at an instruction in the middle of them. So:
 *
 * In:
 *   1. The original bytes are kept, and a detour with a copy of them is written
 *      before anything leads to it. Arming the kprobe makes every CPU serialise,
 *      so that none runs a stale copy of it.
 *   2. A kprobe is registered at the entry, not yet armed: it knows the true first
 *      byte. If that and the others in memory are the ones kept, and nobody else's
 *      kprobe is there, the detour is right, and the kprobe is armed.
 *   3. From here on it sends every CPU that comes to the entry into the detour:
 *      none begins to run the instructions to be replaced. While the jump is made,
 *      kprobes take the int3 for the probed instruction: where they are switched
 *      off as a whole, it stays, and so does its handler. Nobody else may register
 *      a kprobe: its handler could send a CPU back into those instructions.
 *   4. synchronize_rcu_tasks() waits until each task has slept or gone to user
 *      mode once and until each interrupt handler has ended: a task or an
 *      interrupt that was in the middle of those instructions has left them.
 *   5. The jump is written. A CPU that comes by meanwhile meets an int3 and is
 *      sent where the jump leads; one that trapped on the kprobe's int3 just
 *      before finds the kprobe still there. What is left of an instruction behind
 *      the jump becomes nops.
 * Out:
 *   1. The original bytes are written over the jump, all but the first, which
 *      becomes the kprobe's int3 again. A CPU that comes by still goes into
 *      the detour. None can be inside the five bytes: since step 4 all have
 *      taken the detour, which returns behind them.
 *   2. The kprobe goes, and its int3 with it unless another kprobe has joined
 *      at the same address; unregister_kprobe() waits for its handlers to end.
 *   3. synchronize_rcu_tasks() waits for the tasks preempted in the detour or
 *      on their way to it. Only then may the detour, and this module, be freed.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <linux/rculist.h>
#include <linux/rcupdate.h>
#include <linux/string.h>

#include "djprobe_detour.h"
#include "djprobe_jump.h"
#include "djprobe_reserve.h"
#include "djprobe_site.h"
#include "djprobe_text.h"
#include "ktext.h"
#include "refusal.h"

/* Those with a bypass; writers are serialised, readers have interrupts off. */
static LIST_HEAD(djprobe_bypassed);

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

	list_for_each_entry_rcu(jump, &djprobe_bypassed, list, true)
		if (jump->bypass.addr == armed->addr)
			regs->ip = (unsigned long)jump->copy;
}
NOKPROBE_SYMBOL(bypass_missed);

/* Whether the bytes under the jump, but for the first, are as they were kept, and nobody else's. */
static bool is_rest_unchanged(const struct djprobe_jump *jump)
{
	const u8 *addr = jump->bypass.addr;

	return !memcmp(addr + 1, jump->original + 1, jump->replaced - 1) &&
	       djprobe_text_is_alone(&jump->bypass) &&
	       !djprobe_text_is_probed((unsigned long)addr + 1, (unsigned long)addr + jump->replaced);
}

/*
 * What kprobes take for the first byte of the probed instruction: they write it
 * where they are switched off as a whole, and decode the function with it to find
 * out where another probe may go. Needs the lock on text, under which the kprobe
 * at an address may become another one.
 */
static void set_opcode(const struct djprobe_jump *jump, u8 opcode)
{
	djprobe_text_kprobe(jump->bypass.addr)->opcode = opcode;
}

/* Whether the detour is right; then hits that kprobes miss run it as well. */
static bool claim(struct djprobe_jump *jump)
{
	struct kprobe *registered;
	bool right;

	ktext_lock();
	registered = djprobe_text_kprobe(jump->bypass.addr);
	right = registered->opcode == jump->original[0] && is_rest_unchanged(jump);
	if (right) {
		jump->claimed = true;
		jump->emulate_op = registered->ainsn.emulate_op;
		WRITE_ONCE(registered->ainsn.emulate_op, bypass_missed);
	}
	ktext_unlock();
	return right;
}

/* The int3 is there to stay, unless kprobes are switched off. */
static bool keep_int3(struct djprobe_jump *jump)
{
	bool there;

	ktext_lock();
	there = *jump->bypass.addr == INT3_INSN_OPCODE;
	if (there)
		set_opcode(jump, INT3_INSN_OPCODE);
	ktext_unlock();
	return there;
}

static struct refusal arm_bypass(struct djprobe_jump *jump)
{
	int err;

	if (!claim(jump))
		return REFUSAL(EBUSY, "another probe came meanwhile");
	err = enable_kprobe(&jump->bypass);
	if (err)
		return REFUSAL(-err, kprobe_refusal(err));
	if (!keep_int3(jump))
		return REFUSAL(EAGAIN, "kprobes are switched off");
	return NO_REFUSAL;
}

static struct refusal register_bypass(struct djprobe_jump *jump)
{
	struct kprobe *bypass = &jump->bypass;
	int err;

	bypass->pre_handler = bypass_hit;
	bypass->post_handler = bypass_post;
	bypass->flags = KPROBE_FLAG_DISABLED;
	err = register_kprobe(bypass);
	if (err)
		return REFUSAL(-err, kprobe_refusal(err));
	djprobe_reserve(bypass->addr, INT3_INSN_SIZE);
	list_add_rcu(&jump->list, &djprobe_bypassed);
	return NO_REFUSAL;
}

/*
 * Where kprobes are switched off as a whole, unregister_kprobe() leaves the int3.
 * A CPU that meets it before it is gone dies: there is no lock on that switch.
 */
static void remove_forgotten_int3(const struct djprobe_jump *jump)
{
	u8 *addr = jump->bypass.addr;

	ktext_lock();
	if (*addr == INT3_INSN_OPCODE && !djprobe_text_kprobe(addr))
		ktext_exchange(addr, jump->original, INT3_INSN_SIZE, addr);
	ktext_unlock();
}

/*
 * Needs the original bytes, where single-stepping is right again. Afterwards
 * no CPU is in the detour, nor on the way to it. The registered kprobe may stay,
 * if another user's probe has joined it.
 */
static void drop_bypass(struct djprobe_jump *jump)
{
	unregister_kprobe(&jump->bypass);
	remove_forgotten_int3(jump);
	list_del_rcu(&jump->list);
	djprobe_release(jump->bypass.addr, INT3_INSN_SIZE);
	synchronize_rcu_tasks();
}

static void make_text(const struct djprobe_jump *jump, u8 text[JMP32_INSN_SIZE])
{
	__text_gen_insn(text, JMP32_INSN_OPCODE, jump->bypass.addr, jump->detour, JMP32_INSN_SIZE);
}

/*
 * No CPU comes to the bytes between the jump and the next instruction, but kprobes
 * decode them, to find out where another probe may go: what is left of an instruction
 * would make them take its neighbours for others. Needs the lock on text.
 */
static void write_rest(const struct djprobe_jump *jump, const u8 *rest)
{
	u8 *addr = jump->bypass.addr, *end = addr + jump->replaced;

	for (addr += JMP32_INSN_SIZE; addr < end; addr++, rest++)
		ktext_exchange(addr, rest, 1, end);
}

/* Kprobes that join from here on are not hit until the jump has gone. */
static struct refusal write_jump(struct djprobe_jump *jump)
{
	u8 text[JMP32_INSN_SIZE], nops[DJPROBE_COVERED_MAX];
	bool right;

	make_text(jump, text);
	memset(nops, 0x90, sizeof(nops));
	ktext_lock();
	right = *jump->bypass.addr == INT3_INSN_OPCODE && is_rest_unchanged(jump);
	if (right) {
		ktext_replace(jump->bypass.addr, text, text);
		write_rest(jump, nops);
		set_opcode(jump, JMP32_INSN_OPCODE);
	}
	ktext_unlock();
	if (!right)
		return REFUSAL(EBUSY, "another probe came meanwhile");
	djprobe_release(jump->bypass.addr, INT3_INSN_SIZE);
	return NO_REFUSAL;
}

static void unclaim(struct djprobe_jump *jump)
{
	if (!jump->claimed)
		return;
	set_opcode(jump, jump->original[0]);
	WRITE_ONCE(djprobe_text_kprobe(jump->bypass.addr)->ainsn.emulate_op, jump->emulate_op);
	jump->claimed = false;
}

/* Leaves the int3, which a kprobe that has joined needs; it goes with the last kprobe. */
static void write_original(struct djprobe_jump *jump)
{
	u8 text[JMP32_INSN_SIZE], original[JMP32_INSN_SIZE];

	make_text(jump, text);
	memcpy(original, jump->original, sizeof(original));
	original[0] = INT3_INSN_OPCODE;
	ktext_lock();
	write_rest(jump, jump->original + JMP32_INSN_SIZE);
	ktext_replace(jump->bypass.addr, original, text);
	unclaim(jump);
	ktext_unlock();
}

static void give_up(struct djprobe_jump *jump)
{
	ktext_lock();
	unclaim(jump);
	ktext_unlock();
	drop_bypass(jump);
}

static struct refusal install(struct djprobe_jump *jump)
{
	struct refusal refusal = register_bypass(jump);

	if (refusal.err)
		return refusal;
	refusal = arm_bypass(jump);
	if (!refusal.err) {
		synchronize_rcu_tasks();
		refusal = write_jump(jump);
	}
	if (refusal.err)
		give_up(jump);
	return refusal;
}

/* What kprobes take for the beginning of an instruction while the jump is there need not be one. */
static struct refusal install_alone(struct djprobe_jump *jump)
{
	const u8 *rest = jump->bypass.addr + INT3_INSN_SIZE;
	size_t size = jump->replaced - INT3_INSN_SIZE;
	struct refusal refusal;

	djprobe_reserve(rest, size);
	refusal = install(jump);
	if (refusal.err)
		djprobe_release(rest, size);
	return refusal;
}

static struct refusal make(struct djprobe_jump *jump, u8 *address)
{
	struct refusal refusal = djprobe_site_refusal((unsigned long)address, &jump->replaced);

	if (refusal.err)
		return refusal;
	memcpy(jump->original, address, jump->replaced);
	jump->bypass.addr = address;
	refusal = djprobe_detour_build(jump);
	if (refusal.err)
		return refusal;
	refusal = install_alone(jump);
	if (refusal.err)
		djprobe_detour_free(jump);
	return refusal;
}

struct refusal djprobe_jump_make(struct djprobe *djp)
{
	struct djprobe_jump *jump = djprobe_detour_jump();
	struct refusal refusal;

	if (!jump)
		return REFUSAL(ENOSPC, "no detour buffer is free");
	*jump = (struct djprobe_jump){ .called = djp };
	INIT_LIST_HEAD(&jump->probes);
	list_add(&djp->list, &jump->probes);

	if (!djprobe_text_hold(djp->address, &jump->module))
		return REFUSAL(ENOENT, "the module is being unloaded");
	refusal = make(jump, djp->address);
	if (refusal.err)
		module_put(jump->module);
	else
		djp->jump = jump;
	return refusal;
}

void djprobe_jump_remove(struct djprobe_jump *jump)
{
	write_original(jump);
	drop_bypass(jump);
	djprobe_release(jump->bypass.addr, jump->replaced);
	djprobe_detour_free(jump);
	module_put(jump->module);
}

struct djprobe_jump *djprobe_jump_of(const struct djprobe *djp)
{
	struct djprobe_jump *jump;
	struct djprobe *probe;

	list_for_each_entry(jump, &djprobe_bypassed, list)
		list_for_each_entry(probe, &jump->probes, list)
			if (probe == djp)
				return jump;
	return NULL;
}

struct djprobe_jump *djprobe_jump_at(const u8 *address)
{
	struct djprobe_jump *jump;

	list_for_each_entry(jump, &djprobe_bypassed, list)
		if (jump->bypass.addr == address)
			return jump;
	return NULL;
}
