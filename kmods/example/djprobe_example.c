// SPDX-License-Identifier: GPL-2.0-only
/*
 * How is a djprobe used? This one counts the calls of a function:
 *
 *	$ insmod djprobe.ko
 *	$ insmod djprobe_example.ko symbol=vfs_read
 *	$ cat /sys/module/djprobe_example/parameters/hits
 */
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sysfs.h>

#include "djprobe.h"

static char *symbol = "vfs_read";
module_param(symbol, charp, 0444);
MODULE_PARM_DESC(symbol, "the function to probe");

static unsigned int offset;
module_param(offset, uint, 0444);
MODULE_PARM_DESC(offset, "where in the function, in bytes");

/* Written with preemption off, by every CPU in a variable of its own. */
static DEFINE_PER_CPU(unsigned long, example_hits);

static void count_example_hit(struct djprobe *djp, struct pt_regs *regs)
{
	this_cpu_inc(example_hits);
}

static struct djprobe example = { .handler = count_example_hit };

static int get_hits(char *page, const struct kernel_param *param)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += per_cpu(example_hits, cpu);
	return sysfs_emit(page, "%lu\n", sum);
}

static const struct kernel_param_ops hits_ops = { .get = get_hits };
module_param_cb(hits, &hits_ops, NULL, 0444);
MODULE_PARM_DESC(hits, "calls counted since the module was loaded");

static int __init djprobe_example_init(void)
{
	example.symbol = symbol;
	example.offset = offset;
	return register_djprobe(&example);
}

static void __exit djprobe_example_exit(void)
{
	unregister_djprobe(&example);
}

module_init(djprobe_example_init);
module_exit(djprobe_example_exit);
MODULE_DESCRIPTION("Counts the calls of a function by a djprobe");
MODULE_LICENSE("GPL");
