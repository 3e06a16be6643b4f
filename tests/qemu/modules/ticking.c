// SPDX-License-Identifier: GPL-2.0-only
// A kprobe at every packet of a flood of pings, if its parameter says so: symbol=icmp_rcv.
#include <linux/kprobes.h>
#include <linux/module.h>

static int seen(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}

static char *symbol;
module_param(symbol, charp, 0);
static struct kprobe kp = { .pre_handler = seen };

static int __init ticking_init(void)
{
	kp.symbol_name = symbol;
	return register_kprobe(&kp);
}
module_init(ticking_init);

static void __exit ticking_exit(void)
{
	unregister_kprobe(&kp);
}
module_exit(ticking_exit);
MODULE_LICENSE("GPL");
