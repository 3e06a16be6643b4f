// SPDX-License-Identifier: GPL-2.0-only
/*
 * How does a jprobe enter its handler and leave it?
 *
 * A hit costs three traps, as it did when jprobe was part of the kernel:
 *   1. the kprobe's int3: registers and the top of the stack are saved, and the
 *      CPU is sent to the handler, interrupts off;
 *   2. the int3 of jprobe_return(): everything is put back, and the CPU is sent
 *      to the kprobe's copy of the probed instruction;
 *   3. the int3 behind that copy: the CPU goes on behind the probed instruction.
 * Neither of the last two is a kprobe's own, yet the kernel looks for a kprobe
 * there; both are kept out of the probed address's list (see jprobe_exit.c).
 * Interrupts stay off from the first trap to the end of the third, which is why
 * the state of a hit can be per CPU, and why synchronize_rcu(), which
 * unregister_kprobe() calls, waits for every hit that has begun.
 */
#include <linux/kdebug.h>
#include <linux/mutex.h>
#include <linux/percpu.h>
#include <linux/sched/task_stack.h>
#include <linux/string.h>
#include <asm/processor-flags.h>

#include "function.h"
#include "jprobe.h"
#include "jprobe_exit.h"
#include "kprobe_list.h"
#include "ksym.h"
#include "refusal.h"

/* A hit in progress on one CPU. */
struct jprobe_hit {
	struct kprobe *kp;	/* NULL while there is none */
	struct pt_regs regs;
	size_t stack_size;
	u8 stack[MAX_STACK_SIZE];
};

static DEFINE_PER_CPU(struct jprobe_hit, jprobe_hit);
static DEFINE_MUTEX(jprobe_mutex);
static unsigned int registered;

/*
 * The handler's parameters may lie on the stack, above the return address, and
 * belong to the handler: a compiler may reuse them, so they are saved. On the
 * task's stack its end is known; on any other one nothing behind the page is
 * touched.
 */
static size_t saved_stack_size(unsigned long sp)
{
	unsigned long stack = (unsigned long)task_stack_page(current);
	unsigned long end = PAGE_ALIGN(sp + 1);

	if (sp >= stack && sp < stack + THREAD_SIZE)
		end = stack + THREAD_SIZE;
	return min_t(unsigned long, MAX_STACK_SIZE, end - sp);
}
NOKPROBE_SYMBOL(saved_stack_size);

static int enter_handler(struct kprobe *kp, struct pt_regs *regs)
{
	struct jprobe *jp = container_of(kp, struct jprobe, kp);
	struct jprobe_hit *hit = this_cpu_ptr(&jprobe_hit);

	/* A handler that hits a jprobe itself: there is room for one hit on a CPU. */
	if (hit->kp) {
		kp->nmissed++;
		return 0;
	}
	hit->kp = kp;
	hit->regs = *regs;
	hit->stack_size = saved_stack_size(regs->sp);
	memcpy(hit->stack, (void *)regs->sp, hit->stack_size);

	regs->flags &= ~X86_EFLAGS_IF;
	regs->ip = (unsigned long)READ_ONCE(jp->entry);
	return 1;
}
NOKPROBE_SYMBOL(enter_handler);

/* A kprobe with a post-handler is neither boosted nor turned into a jump. */
static void stay_single_stepped(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(stay_single_stepped);

static void leave_handler(struct jprobe_hit *hit, struct pt_regs *regs)
{
	struct kprobe *kp = hit->kp;

	memcpy((void *)hit->regs.sp, hit->stack, hit->stack_size);
	*regs = hit->regs;
	if (kp->ainsn.emulate_op) {
		/* An instruction that kprobes never copy, like a jump or a call. */
		kp->ainsn.emulate_op(kp, regs);
		hit->kp = NULL;
		return;
	}
	regs->flags &= ~X86_EFLAGS_IF;
	regs->ip = (unsigned long)kp->ainsn.insn;
}
NOKPROBE_SYMBOL(leave_handler);

static bool trapped_behind_copy(const struct kprobe *kp, unsigned long ip)
{
	unsigned long copy = (unsigned long)kp->ainsn.insn;

	return ip > copy + INT3_INSN_SIZE && ip <= copy + MAX_INSN_SIZE;
}
NOKPROBE_SYMBOL(trapped_behind_copy);

static void leave_copy(struct jprobe_hit *hit, struct pt_regs *regs)
{
	struct kprobe *kp = hit->kp;

	regs->ip += (unsigned long)kp->addr - (unsigned long)kp->ainsn.insn - INT3_INSN_SIZE;
	regs->flags |= hit->regs.flags & X86_EFLAGS_IF;
	hit->kp = NULL;
}
NOKPROBE_SYMBOL(leave_copy);

static int jprobe_trapped(struct notifier_block *notifier, unsigned long event, void *data)
{
	struct pt_regs *regs = ((struct die_args *)data)->regs;
	struct jprobe_hit *hit = this_cpu_ptr(&jprobe_hit);

	if (event != DIE_INT3 || user_mode(regs) || !hit->kp)
		return NOTIFY_DONE;
	if (regs->ip == jprobe_exit_trapped)
		leave_handler(hit, regs);
	else if (trapped_behind_copy(hit->kp, regs->ip))
		leave_copy(hit, regs);
	else
		return NOTIFY_DONE;
	return NOTIFY_STOP;
}
NOKPROBE_SYMBOL(jprobe_trapped);

static struct notifier_block jprobe_notifier = { .notifier_call = jprobe_trapped };

static int check_entry(const struct kprobe *kp, unsigned long *address)
{
	unsigned long start = ksym_lookup(kp->symbol_name);
	struct function function;

	if (!start)
		return refuse_point(kp->symbol_name, kp->offset, -ENOENT, "no such symbol");
	*address = start + kp->offset;
	if (!find_function(*address, &function) || *address != function.entry)
		return refuse_point(kp->symbol_name, kp->offset, -EINVAL,
				    "not a function entry (the instruction after endbr and the ftrace nop)");
	return 0;
}

static bool is_copy_apart(const struct kprobe *kp)
{
	return kprobe_list(kp->ainsn.insn + kp->ainsn.size) != kprobe_list(kp->addr);
}

/* Registers kp so that the int3 behind its copy is in another list than the probe itself. */
static int register_apart(struct kprobe *kp)
{
	/* Holds the slot that does not fit, so that the next registration gets another one. */
	struct kprobe spacer = {
		.symbol_name = "kallsyms_lookup_name",
		.flags = KPROBE_FLAG_DISABLED,
	};
	int err = register_kprobe(kp);

	if (err || is_copy_apart(kp))
		return err;
	unregister_kprobe(kp);
	err = register_kprobe(&spacer);
	if (err)
		return err;
	/* As before its registration: a name only, and not disabled. */
	kp->addr = NULL;
	kp->flags = 0;
	err = register_kprobe(kp);
	unregister_kprobe(&spacer);
	return err;
}

int register_jprobe(struct jprobe *jp)
{
	unsigned long address;
	int err;

	err = check_entry(&jp->kp, &address);
	if (err)
		return err;
	jp->kp.pre_handler = enter_handler;
	jp->kp.post_handler = stay_single_stepped;

	mutex_lock(&jprobe_mutex);
	/*
	 * The notifier goes first and leaves last: no hit is possible without it.
	 * The exit is the first jprobe's choice; others of a module share it.
	 */
	if (!registered) {
		choose_jprobe_exit((void *)address);
		register_die_notifier(&jprobe_notifier);
	}
	err = register_apart(&jp->kp);
	if (!err)
		registered++;
	else if (!registered)
		unregister_die_notifier(&jprobe_notifier);
	mutex_unlock(&jprobe_mutex);

	if (err)
		refuse_point(jp->kp.symbol_name, jp->kp.offset, err, kprobe_refusal(err));
	return err;
}

void unregister_jprobe(struct jprobe *jp)
{
	mutex_lock(&jprobe_mutex);
	unregister_kprobe(&jp->kp);
	if (!--registered)
		unregister_die_notifier(&jprobe_notifier);
	mutex_unlock(&jprobe_mutex);
}
