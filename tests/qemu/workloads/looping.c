// SPDX-License-Identifier: GPL-2.0-only
/* A user's module with parameters: its handler takes so many turns. It takes one label. */
#include <linux/kprobes.h>
#include <linux/module.h>

static unsigned long hits;
module_param(hits, ulong, 0444);
static int turns;
module_param(turns, int, 0);
static char *label = "two words";
module_param(label, charp, 0);

static int count(struct kprobe *kp, struct pt_regs *regs)
{
	int turn;

	for (turn = 0; turn < turns; turn++)
		barrier();
	hits++;
	return 0;
}

static struct kprobe kp = {
	.symbol_name = "__ia32_sys_getppid",
	.pre_handler = count,
};

static int __init looping_init(void)
{
	if (strcmp(label, "two words"))
		return -EINVAL;
	return register_kprobe(&kp);
}

static void __exit looping_exit(void)
{
	unregister_kprobe(&kp);
}

module_init(looping_init);
module_exit(looping_exit);
MODULE_LICENSE("GPL");
