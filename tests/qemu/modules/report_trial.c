// SPDX-License-Identifier: GPL-2.0-only
/* A module that is at work until a 1 is written to its "stop", as "report" shows. */
#include <linux/module.h>
#include <linux/sysfs.h>

static bool stop;
module_param(stop, bool, 0200);

static int get_report(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, stop ? "stopped\n" : "at work\n");
}

static const struct kernel_param_ops report_ops = { .get = get_report };
module_param_cb(report, &report_ops, NULL, 0400);

static int __init report_trial_init(void)
{
	return 0;
}

static void __exit report_trial_exit(void)
{
}

module_init(report_trial_init);
module_exit(report_trial_exit);
MODULE_DESCRIPTION("Is at work, or stopped");
MODULE_LICENSE("GPL");
