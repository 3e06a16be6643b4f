// SPDX-License-Identifier: GPL-2.0-only
/* What does a probe module tell the host, in /sys/module/<name>/parameters/? */
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>

#include "report.h"

DEFINE_PER_CPU(unsigned long, report_hits);

static bool counting;

static unsigned long total_hits(void)
{
	unsigned long total = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		total += per_cpu(report_hits, cpu);
	return total;
}

/* Writers are serialised by the kernel's lock on this module's parameters. */
static int set_counting(const char *text, const struct kernel_param *param)
{
	int err, cpu;

	err = param_set_bool(text, param);
	if (err)
		return err;

	/*
	 * Handlers run with preemption or interrupts off, so after
	 * synchronize_rcu() none counts any more: hits is final when a write of
	 * 0 returns, and nothing adds to it while a write of 1 zeroes it.
	 */
	report.select_handler(false);
	synchronize_rcu();
	if (counting) {
		for_each_possible_cpu(cpu)
			per_cpu(report_hits, cpu) = 0;
		report.select_handler(true);
	}
	return 0;
}

static int get_counting(char *line, const struct kernel_param *param)
{
	return sysfs_emit(line, "%d\n", counting);
}

static const struct kernel_param_ops counting_ops = {
	.set = set_counting,
	.get = get_counting,
};
module_param_cb(counting, &counting_ops, &counting, 0644);

REPORT_VALUE(hits, "%lu", total_hits());
REPORT_VALUE(missed, "%lu", report.kp->nmissed);
REPORT_VALUE(address, "%lx", (unsigned long)report.kp->addr);
