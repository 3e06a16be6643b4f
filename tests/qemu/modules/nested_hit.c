// SPDX-License-Identifier: GPL-2.0-only
/*
 * What becomes of a kprobe that is hit while another one's handler runs? The
 * handler here, at one system call's function, calls another's, whose kprobe's
 * handler the kernel has to leave out.
 */
#include <linux/kprobes.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

static char symbol[64];
module_param_string(symbol, symbol, sizeof(symbol), 0444);
static unsigned int offset;
module_param(offset, uint, 0444);
/* The address of the other function, which takes the user's registers. */
static unsigned long called;
module_param(called, ulong, 0444);

static int hit(struct kprobe *kp, struct pt_regs *regs)
{
	asmlinkage long (*function)(const struct pt_regs *user) = (void *)called;
	const struct pt_regs none = {};

	function(&none);
	return 0;
}
NOKPROBE_SYMBOL(hit);

/* Keeps the kernel from making a jump of it. */
static void post(struct kprobe *kp, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(post);

static struct kprobe kp = {
	.symbol_name = symbol,
	.pre_handler = hit,
	.post_handler = post,
};

static int __init nested_hit_init(void)
{
	kp.offset = offset;
	return register_kprobe(&kp);
}

static void __exit nested_hit_exit(void)
{
	unregister_kprobe(&kp);
}

module_init(nested_hit_init);
module_exit(nested_hit_exit);
MODULE_DESCRIPTION("A kprobe whose handler hits another kprobe");
MODULE_LICENSE("GPL");
