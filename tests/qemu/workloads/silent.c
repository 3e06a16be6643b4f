// SPDX-License-Identifier: GPL-2.0-only
/* A user's module without anything of the lab's: a kprobe that does not report its hits. */
#include <linux/kprobes.h>
#include <linux/module.h>


static int count(struct kprobe *kp, struct pt_regs *regs)
{
	return 0;
}

static struct kprobe kp = {
	.symbol_name = "__ia32_sys_getppid",
	.pre_handler = count,
};

static int __init plain_init(void)
{
	return register_kprobe(&kp);
}

static void __exit plain_exit(void)
{
	unregister_kprobe(&kp);
}

module_init(plain_init);
module_exit(plain_exit);
MODULE_LICENSE("GPL");
