// SPDX-License-Identifier: GPL-2.0-only
/*
 * How does the host put djprobes wherever it wants, and see what they do?
 *
 * "symbol" and "offset", or "address" where there is no symbol, name the place; a
 * number written to "put" registers the djprobe of that number there, one
 * written to "take" unregisters it. A function's symbol and a number written to
 * "call" call it: "result" is what it returned, "order" the numbers of the
 * djprobes that were hit, "ip" and "orig_ax" what the last one's registers had.
 * "hits" are everybody's on each CPU, "exact" those of processes whose name
 * begins with that word. "put_again" and "take_again" register and unregister
 * whatever has been registered or not.
 */
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>

#include "djprobe.h"
#include "djprobe_trial.h"
#include "ksym.h"

enum { PROBES = 66, NAME_SIZE = 64, ORDER_MAX = 32 };

static struct trial {
	struct djprobe djp;
	char symbol[NAME_SIZE];
	bool registered;
} trials[PROBES];

static char symbol[NAME_SIZE];
module_param_string(symbol, symbol, sizeof(symbol), 0644);
static unsigned int offset;
module_param(offset, uint, 0644);
static unsigned long address;
module_param(address, ulong, 0644);
/* Added to the probed function's first argument by each hit. */
static long add;
module_param(add, long, 0644);

static long result;
module_param(result, long, 0444);
static int order[ORDER_MAX];
static int order_count;
module_param_array(order, int, &order_count, 0444);
static unsigned long ip;
module_param(ip, ulong, 0444);
static unsigned long orig_ax;
module_param(orig_ax, ulong, 0444);
static struct task_struct *caller;

static DEFINE_PER_CPU(unsigned long, hits);
static DEFINE_PER_CPU(unsigned long, exact_hits);

static void trial_hit(struct djprobe *djp, struct pt_regs *regs)
{
	this_cpu_inc(hits);
	if (!strncmp(current->comm, "exact", 5))
		this_cpu_inc(exact_hits);
	if (current != caller)
		return;
	if (order_count < ORDER_MAX)
		order[order_count++] = container_of(djp, struct trial, djp) - trials;
	ip = regs->ip;
	orig_ax = regs->orig_ax;
#ifdef CONFIG_X86_64
	regs->di += add;
#else
	regs->ax += add;
#endif
}
NOKPROBE_SYMBOL(trial_hit);

static struct trial *numbered(const char *text)
{
	unsigned int number;

	return kstrtouint(text, 0, &number) || number >= PROBES ? NULL : &trials[number];
}

static int put(const char *text, const struct kernel_param *param)
{
	struct trial *trial = numbered(text);
	int err;

	if (!trial || trial->registered)
		return -EBUSY;
	strscpy(trial->symbol, symbol, sizeof(trial->symbol));
	strim(trial->symbol);
	trial->djp = (struct djprobe){
		.symbol = *trial->symbol ? trial->symbol : NULL,
		.offset = offset,
		.address = (u8 *)address,
		.handler = trial_hit,
	};
	err = register_djprobe(&trial->djp);
	trial->registered = !err;
	if (!err)
		address = (unsigned long)trial->djp.address;
	return err;
}

static void take_out(struct trial *trial)
{
	if (trial->registered)
		unregister_djprobe(&trial->djp);
	trial->registered = false;
}

static int take(const char *text, const struct kernel_param *param)
{
	struct trial *trial = numbered(text);

	if (!trial || !trial->registered)
		return -ENOENT;
	take_out(trial);
	return 0;
}

static int put_again(const char *text, const struct kernel_param *param)
{
	struct trial *trial = numbered(text);

	return trial ? register_djprobe(&trial->djp) : -EINVAL;
}

static int take_again(const char *text, const struct kernel_param *param)
{
	struct trial *trial = numbered(text);

	return trial ? unregister_djprobe(&trial->djp) : -EINVAL;
}

static int call(const char *text, const struct kernel_param *param)
{
	unsigned long function;
	char name[NAME_SIZE];
	long argument;

	if (sscanf(text, "%63s %ld", name, &argument) != 2)
		return -EINVAL;
	function = ksym_lookup(name);
	if (!function)
		return -ENOENT;
	order_count = 0;
	caller = current;
	result = djprobe_invoke((long (*)(long))function, argument);
	caller = NULL;
	return 0;
}

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

static const struct kernel_param_ops put_ops = { .set = put };
static const struct kernel_param_ops take_ops = { .set = take };
static const struct kernel_param_ops put_again_ops = { .set = put_again };
static const struct kernel_param_ops take_again_ops = { .set = take_again };
static const struct kernel_param_ops call_ops = { .set = call };
static const struct kernel_param_ops hits_ops = { .get = get_hits };
static const struct kernel_param_ops exact_ops = { .get = get_exact };
module_param_cb(put, &put_ops, NULL, 0200);
module_param_cb(take, &take_ops, NULL, 0200);
module_param_cb(put_again, &put_again_ops, NULL, 0200);
module_param_cb(take_again, &take_again_ops, NULL, 0200);
module_param_cb(call, &call_ops, NULL, 0200);
module_param_cb(hits, &hits_ops, NULL, 0444);
module_param_cb(exact, &exact_ops, NULL, 0444);

/* With a symbol given at loading, djprobe 0 is there from the beginning. */
static int __init djprobe_trial_init(void)
{
	return *symbol ? put("0", NULL) : 0;
}

static void __exit djprobe_trial_exit(void)
{
	int i;

	for (i = 0; i < PROBES; i++)
		take_out(&trials[i]);
}

module_init(djprobe_trial_init);
module_exit(djprobe_trial_exit);
MODULE_DESCRIPTION("Puts djprobes where the host wants them");
MODULE_LICENSE("GPL");
