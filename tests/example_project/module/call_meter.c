// SPDX-License-Identifier: GPL-2.0-only
// Counts the calls of a kernel function, by a kprobe at its entry.
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/kprobes.h>
#include <linux/module.h>

static char *function = "__do_sys_getppid";
module_param(function, charp, 0444);
MODULE_PARM_DESC(function, "the function whose calls are counted");

static ulong calls;
module_param(calls, ulong, 0644);

static bool careless;
module_param(careless, bool, 0444);
MODULE_PARM_DESC(careless, "warn at the first call");

static int count(struct kprobe *probe, struct pt_regs *regs)
{
	WARN_ONCE(careless, "careless\n");
	calls++;
	return 0;
}

static struct kprobe meter = { .pre_handler = count };

static int __init call_meter_init(void)
{
	int error;

	meter.symbol_name = function;
	error = register_kprobe(&meter);
	if (error)
		pr_err("cannot count the calls of %s: %d\n", function, error);
	else
		pr_notice("counts the calls of %s\n", function);
	return error;
}

static void __exit call_meter_exit(void)
{
	unregister_kprobe(&meter);
	pr_notice("%lu calls\n", calls);
}

module_init(call_meter_init);
module_exit(call_meter_exit);
MODULE_LICENSE("GPL");
