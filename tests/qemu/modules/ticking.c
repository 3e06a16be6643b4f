// SPDX-License-Identifier: GPL-2.0-only
// A kprobe at every packet of a flood of pings.
#include <linux/kprobes.h>
#include <linux/module.h>

static int seen(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}

static struct kprobe kp = { .symbol_name = "icmp_rcv", .pre_handler = seen };

static int __init ticking_init(void)
{
	return register_kprobe(&kp);
}
module_init(ticking_init);

static void __exit ticking_exit(void)
{
	unregister_kprobe(&kp);
}
module_exit(ticking_exit);
MODULE_LICENSE("GPL");
