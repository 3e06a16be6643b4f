// SPDX-License-Identifier: GPL-2.0-only
/*
 * What becomes of a hit that an interrupt interrupts? At every tick a timer calls
 * a system call's function, in whatever task the tick finds.
 */
#include <linux/jiffies.h>
#include <linux/linkage.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>
#include <linux/timer.h>

/* The function's address; it takes the user's registers. */
static unsigned long called;
module_param(called, ulong, 0444);

static void fire(struct timer_list *timer)
{
	asmlinkage long (*function)(const struct pt_regs *user) = (void *)called;
	const struct pt_regs none = {};

	function(&none);
	mod_timer(timer, jiffies + 1);
}

static DEFINE_TIMER(timer, fire);

static int __init timer_hit_init(void)
{
	return mod_timer(&timer, jiffies + 1);
}

static void __exit timer_hit_exit(void)
{
	del_timer_sync(&timer);
}

module_init(timer_hit_init);
module_exit(timer_hit_exit);
MODULE_DESCRIPTION("A timer that hits a probe");
MODULE_LICENSE("GPL");
