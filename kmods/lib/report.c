// SPDX-License-Identifier: GPL-2.0-only
/* What does a probe module report to the host, in /sys/module/<name>/parameters/? */
#include <linux/kconfig.h>
#include <linux/moduleparam.h>
#include <linux/rcupdate.h>
#include <linux/string.h>

#include "report.h"
#include "ring.h"

DEFINE_PER_CPU(unsigned long, report_hits);
DEFINE_PER_CPU(unsigned long, report_others);

int report_caller;
module_param_named(caller, report_caller, int, 0644);

static const char *const handler_names[] = {
	[HANDLER_NOOP] = "noop",
	[HANDLER_COUNT] = "count",
	[HANDLER_RECORD] = "record",
	[HANDLER_STACK] = "stack",
};

static enum handler selected = HANDLER_NOOP;

static unsigned long total(unsigned long __percpu *counter)
{
	unsigned long sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += *per_cpu_ptr(counter, cpu);
	return sum;
}

static void forget_hits(void)
{
	int cpu;

	for_each_possible_cpu(cpu) {
		per_cpu(report_hits, cpu) = 0;
		per_cpu(report_others, cpu) = 0;
	}
	ring_clear();
}

/* The kernel's lock on this module's parameters serialises writers. */
static int set_handler(const char *text, const struct kernel_param *param)
{
	int wanted = sysfs_match_string(handler_names, text);
	int err;

	/* At loading it is set before the module's init function runs, which then takes it. */
	if (READ_ONCE(THIS_MODULE->state) == MODULE_STATE_GOING)
		return -ENODEV;
	if (wanted < 0)
		return wanted;
	if (wanted == HANDLER_STACK && !(IS_ENABLED(CONFIG_STACKTRACE) && report.traces_stacks))
		return -EOPNOTSUPP;
	if (wanted == HANDLER_RECORD || wanted == HANDLER_STACK) {
		err = ring_allocate();
		if (err)
			return err;
	}

	/*
	 * Handlers run with preemption or interrupts off, so after
	 * synchronize_rcu() none counts or records any more: hits and rings are
	 * final when a write of "noop" returns, and nothing adds to them while
	 * they are emptied for the next handler.
	 */
	err = report.select_handler(HANDLER_NOOP);
	if (err)
		return err;
	selected = HANDLER_NOOP;
	synchronize_rcu();
	if (wanted != HANDLER_NOOP) {
		forget_hits();
		err = report.select_handler(wanted);
		if (err)
			return err;
	}
	selected = wanted;
	return 0;
}

static int get_handler(char *line, const struct kernel_param *param)
{
	return sysfs_emit(line, "%s\n", handler_names[selected]);
}

/*
 * The rings belong to this parameter and go with it: after the module's exit
 * function, or after an init function that failed.
 */
static void free_handler(void *unused)
{
	ring_free();
}

static const struct kernel_param_ops handler_ops = {
	.set = set_handler,
	.get = get_handler,
	.free = free_handler,
};
module_param_cb(handler, &handler_ops, NULL, 0644);

REPORT_VALUE(hits, "%lu", total(&report_hits));
REPORT_VALUE(others, "%lu", total(&report_others));
REPORT_VALUE(missed, "%lu", report.missed());
/* All three, which the host reads after each counting pass. */
REPORT_VALUE(counts, "%lu %lu %lu", total(&report_hits), total(&report_others), report.missed());
REPORT_VALUE(address, "%lx", report.address());
