// SPDX-License-Identifier: GPL-2.0-only
/*
 * Which kprobes fire when something comes between a hit's look into the cache and its end?
 *
 * CPU 1 hits a kprobe and is held before "hold", an address in the kernel, while
 * CPU 0 does something. The name of a race written to
 * "race" has it run. "hits" has a line for each kprobe: how often its handler ran
 * at its own address, and at another one. "held" shows in four numbers whether CPU
 * 1 was held, whether interrupts were on there, whether it gave up waiting, and
 * whether the first kprobe was out of the kernel's hash when the hit was over.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>
#include <linux/sched.h>
#include <linux/smp.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <asm/apic.h>
#include <asm/nmi.h>

#include "cpu_hold.h"
#include "traced_kprobes.h"

enum { PATIENCE_MS = 2000, NOTICING_MS = 100 };

static unsigned long hold;
module_param(hold, ulong, 0644);
static bool removed;

static noinline void first_place(void)
{
	barrier();
}

static noinline void second_place(void)
{
	barrier();
}

#define wait_until(condition)							\
({										\
	int left_ = PATIENCE_MS;						\
										\
	while (!(condition) && left_--)						\
		msleep(1);							\
	(condition) ? 0 : -ETIMEDOUT;						\
})

/* --- threads --------------------------------------------------------------- */

struct errand {
	void (*run)(void);
	struct completion done;
};

static int run_errand(void *data)
{
	struct errand *errand = data;

	errand->run();
	kthread_complete_and_exit(&errand->done, 0);
	return 0;
}

static int start(struct errand *errand, void (*run)(void), int cpu)
{
	struct task_struct *task;

	errand->run = run;
	init_completion(&errand->done);
	task = kthread_create(run_errand, errand, "kprobe_race/%d", cpu);
	if (IS_ERR(task))
		return PTR_ERR(task);
	kthread_bind(task, cpu);
	wake_up_process(task);
	return 0;
}

/* An undisturbed hit on CPU 1. */
static int call(void)
{
	struct errand errand;
	int err = start(&errand, first_place, 1);

	if (!err)
		wait_for_completion(&errand.done);
	return err;
}

static void call_and_be_held(void)
{
	cpu_hold_arm();
	first_place();
	removed = is_removed(FIRST);
	cpu_hold_disarm();
}

/* CPU 1 is held in a hit of the first kprobe, which it had not in its cache, while CPU 0 does something. */
static int race_with(int (*doing)(void))
{
	struct errand caller;
	int err = start(&caller, call_and_be_held, 1);

	if (err)
		return err;
	err = wait_until(smp_load_acquire(&cpu_hold.reached)) ?: doing();
	cpu_hold_release();
	wait_for_completion(&caller.done);
	return err;
}

/* --- races ------------------------------------------------------------------- */

/* The kprobe goes; afterwards there is another one at its place. */
static int remove_first(void)
{
	take(FIRST);
	return 0;
}

static int race_removal(void)
{
	return put_traced(FIRST, first_place) ?: race_with(remove_first) ?: put_traced(SECOND, first_place) ?: call();
}

/* A second kprobe comes, so that an aggregator takes the place of the first. */
static int add_second(void)
{
	return put_traced(SECOND, first_place);
}

static int race_joining(void)
{
	return put_traced(FIRST, first_place) ?: race_with(add_second) ?: call();
}

/* An interrupt hits as many kprobes of the same list as that has entries in the cache. */
static int interrupt(void)
{
	return smp_call_function_single(1, run_others, NULL, true);
}

static int race_setting(void)
{
	return put_others(first_place) ?: put_traced(FIRST, first_place) ?: race_with(interrupt) ?: call();
}

/* An NMI does the same, whether interrupts are on or off. */
static bool nmi_wanted, nmi_done;

static int on_nmi(unsigned int reason, struct pt_regs *regs)
{
	if (!READ_ONCE(nmi_wanted) || smp_processor_id() != 1)
		return NMI_DONE;
	WRITE_ONCE(nmi_wanted, false);
	run_others(NULL);
	smp_store_release(&nmi_done, true);
	return NMI_HANDLED;
}

static int send_nmi(void)
{
	nmi_done = false;
	WRITE_ONCE(nmi_wanted, true);
	apic->send_IPI(1, NMI_VECTOR);
	return wait_until(smp_load_acquire(&nmi_done));
}

static int race_nmi(void)
{
	int err = register_nmi_handler(NMI_LOCAL, on_nmi, 0, KBUILD_MODNAME);

	if (err)
		return err;
	err = put_others(first_place) ?: put_single_stepped(FIRST, first_place) ?: race_with(send_nmi) ?: call();
	unregister_nmi_handler(NMI_LOCAL, KBUILD_MODNAME);
	return err;
}

/* --- a kprobe is used again elsewhere while a hit has got it from the cache -- */

/* Exported, but declared for the kernel's own tests only: changes when a grace period begins or ends. */
unsigned long rcu_get_gp_seq(void);

static bool replaced, in_section;

static void spin(unsigned int ms)
{
	while (ms--)
		cpu_hold_pass_ms();
}

/*
 * The kernel is not preemptible: what is between two calls of schedule() is one
 * section that a grace period waits for, once this CPU has seen it in some ticks.
 */
static void hold_grace_periods_and_call(void)
{
	unsigned long under_way;

	smp_store_release(&in_section, true);
	while (!smp_load_acquire(&replaced))
		cpu_hold_pass_ms();
	/* Nobody else runs here when this thread lets others run. */
	sched_set_fifo(current);
	under_way = rcu_get_gp_seq();
	while (rcu_get_gp_seq() == under_way) {
		schedule();
		spin(NOTICING_MS);
	}
	/* What was under way before the kprobe went has ended; now its own grace period waits. */
	spin(NOTICING_MS);
	cpu_hold_arm();
	schedule();
	/* Nor does it any more; but it has not ended yet, and this hit is none that it waits for. */
	first_place();
	cpu_hold_disarm();
}

static void unregister_and_use_again(void)
{
	take(FIRST);
	put_traced(FIRST, second_place);
	cpu_hold_release();
}

static int race_reuse(void)
{
	struct errand caller, owner;
	int err = put_traced(FIRST, first_place) ?: call();

	in_section = replaced = false;
	err = err ?: start(&caller, hold_grace_periods_and_call, 1);
	if (err)
		return err;
	err = wait_until(smp_load_acquire(&in_section));
	/* With one under way, the kprobe's grace period is always the next one. */
	start_poll_synchronize_rcu();
	msleep(NOTICING_MS);
	err = err ?: start(&owner, unregister_and_use_again, 0);
	if (!err) {
		err = wait_until(is_removed(FIRST)) ?: put_traced(SECOND, first_place);
		smp_store_release(&replaced, true);
		wait_for_completion(&owner.done);
	}
	smp_store_release(&replaced, true);
	wait_for_completion(&caller.done);
	return err;
}

/* --------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int (*run)(void);
} races[] = {
	{ "removal", race_removal },
	{ "joining", race_joining },
	{ "setting", race_setting },
	{ "nmi", race_nmi },
	{ "reuse", race_reuse },
};

static int set_race(const char *text, const struct kernel_param *param)
{
	cpumask_var_t before;
	int race, err;

	for (race = 0; !sysfs_streq(text, races[race].name); race++)
		if (race == ARRAY_SIZE(races) - 1)
			return -EINVAL;
	if (!alloc_cpumask_var(&before, GFP_KERNEL))
		return -ENOMEM;
	cpumask_copy(before, current->cpus_ptr);
	set_cpus_allowed_ptr(current, cpumask_of(0));
	removed = false;
	reset_hits();
	cpu_hold_prepare(hold);
	err = races[race].run();
	take_all();
	set_cpus_allowed_ptr(current, before);
	free_cpumask_var(before);
	return err;
}

static int get_hits(char *page, const struct kernel_param *param)
{
	return tell_hits(page);
}

static int get_held(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, "%d %d %d %d\n", cpu_hold.reached, cpu_hold.interrupts, cpu_hold.timed_out, removed);
}

static const struct kernel_param_ops race_ops = { .set = set_race };
static const struct kernel_param_ops hits_ops = { .get = get_hits };
static const struct kernel_param_ops held_ops = { .get = get_held };
module_param_cb(race, &race_ops, NULL, 0200);
module_param_cb(hits, &hits_ops, NULL, 0444);
module_param_cb(held, &held_ops, NULL, 0444);

static int __init kprobe_race_init(void)
{
	return cpu_hold_init();
}

static void __exit kprobe_race_exit(void)
{
	cpu_hold_exit();
}

module_init(kprobe_race_init);
module_exit(kprobe_race_exit);
MODULE_DESCRIPTION("Kprobes that come and go while a CPU is held in a hit");
MODULE_LICENSE("GPL");
