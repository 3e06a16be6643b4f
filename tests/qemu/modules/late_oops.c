// SPDX-License-Identifier: GPL-2.0-only
/* A warning, and then an oops in a kernel thread: insmod succeeds, and everything but the thread goes on. */
#include <linux/kthread.h>
#include <linux/module.h>

static int *volatile nowhere;

static int die(void *nothing)
{
	return *nowhere;
}

static int __init late_oops_init(void)
{
	WARN_ON(1);
	return PTR_ERR_OR_ZERO(kthread_run(die, NULL, "late_oops"));
}

module_init(late_oops_init);
MODULE_DESCRIPTION("Warns, and then dies in a thread of its own");
MODULE_LICENSE("GPL");
