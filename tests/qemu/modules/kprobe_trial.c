// SPDX-License-Identifier: GPL-2.0-only
/* What does somebody else's kprobe at a given place see? */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>

static char symbol[64];
module_param_string(symbol, symbol, sizeof(symbol), 0444);
static unsigned int offset;
module_param(offset, uint, 0444);

/* Everybody's, and those of processes whose name begins with "exact". */
static DEFINE_PER_CPU(unsigned long, hits);
static DEFINE_PER_CPU(unsigned long, exact_hits);

static int hit(struct kprobe *kp, struct pt_regs *regs)
{
	this_cpu_inc(hits);
	if (!strncmp(current->comm, "exact", 5))
		this_cpu_inc(exact_hits);
	return 0;
}
NOKPROBE_SYMBOL(hit);

/* Keeps the kernel from making a jump of it. */
static void post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(post);

static struct kprobe kp = {
	.pre_handler = hit,
	.post_handler = post,
};

static int show_sum(char *line, unsigned long __percpu *counters)
{
	int cpu, length = 0;

	for_each_online_cpu(cpu)
		length += sysfs_emit_at(line, length, "%lu ", *per_cpu_ptr(counters, cpu));
	return length;
}

static int get_hits(char *line, const struct kernel_param *param)
{
	return show_sum(line, &hits);
}

static int get_exact(char *line, const struct kernel_param *param)
{
	return show_sum(line, &exact_hits);
}

static const struct kernel_param_ops hits_ops = { .get = get_hits };
static const struct kernel_param_ops exact_ops = { .get = get_exact };
module_param_cb(hits, &hits_ops, NULL, 0444);
module_param_cb(exact, &exact_ops, NULL, 0444);

static int __init kprobe_trial_init(void)
{
	kp.symbol_name = symbol;
	kp.offset = offset;
	return register_kprobe(&kp);
}

static void __exit kprobe_trial_exit(void)
{
	unregister_kprobe(&kp);
}

module_init(kprobe_trial_init);
module_exit(kprobe_trial_exit);
MODULE_DESCRIPTION("A kprobe where the host wants it");
MODULE_LICENSE("GPL");
