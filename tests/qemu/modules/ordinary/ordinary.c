// SPDX-License-Identifier: GPL-2.0-only
/* A kprobe as its author has it: nothing of the lab's, no counter, and what its handler does is in another module. */
#include <linux/kprobes.h>
#include <linux/module.h>

#include "ordinary_work.h"

static char *symbol = "__ia32_sys_gettimeofday";
module_param(symbol, charp, 0444);

static int size = 1;
module_param(size, int, 0444);

static int handler_pre(struct kprobe *kp, struct pt_regs *regs)
{
	ordinary_work(size);
	return 0;
}

static struct kprobe probe = { .pre_handler = handler_pre, .offset = 5 };

static int __init ordinary_init(void)
{
	if (!size) {
		pr_err("a size of nothing is no size\n");
		return -EINVAL;
	}
	probe.symbol_name = symbol;
	return register_kprobe(&probe);
}

static void __exit ordinary_exit(void)
{
	unregister_kprobe(&probe);
}

module_init(ordinary_init);
module_exit(ordinary_exit);
MODULE_LICENSE("GPL");
