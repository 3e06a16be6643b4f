/* SPDX-License-Identifier: GPL-2.0-only */
/* What does a probe module report to the host, in /sys/module/<name>/parameters/? */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sysfs.h>

#include "report_life.h"

/* What a hit does: nothing, increment a counter, or record an event (ring.h). */
enum handler { HANDLER_NOOP, HANDLER_COUNT, HANDLER_RECORD };

/* Each module's main file defines one of these; report.c serves it. */
struct report {
	/* Where the probe is: a kprobe's address, a site, a pointer. */
	unsigned long (*address)(void);
	/* Hits for which the kernel could not run the handler. */
	unsigned long (*missed)(void);
	/*
	 * Sends hits to one of the three handlers; touches nothing else. Handlers
	 * run with preemption off. A negative errno, which the writer of the
	 * parameter gets, leaves the one before. May be called before the module's
	 * init function, not once its exit function has begun and report_end() has
	 * returned.
	 */
	int (*select_handler)(enum handler handler);
};

extern const struct report report;

/* The process whose hits are counted; 0: all processes, -1: none. */
extern int report_caller;

DECLARE_PER_CPU(unsigned long, report_hits);
/* Hits of all others. */
DECLARE_PER_CPU(unsigned long, report_others);

/*
 * For counting handlers, wherever they run. One instruction on the CPU's own
 * counter: no hit is lost to another CPU, an interrupt or an NMI.
 */
static __always_inline void count_hit(void)
{
	int caller = READ_ONCE(report_caller);

	if (!caller || caller == current->tgid)
		this_cpu_inc(report_hits);
	else
		this_cpu_inc(report_others);
}

/* A read-only parameter: the format and the values of one line. */
#define REPORT_VALUE(name, format, ...)						\
static int report_get_##name(char *line, const struct kernel_param *param)	\
{										\
	return report_usable() ?: sysfs_emit(line, format "\n", __VA_ARGS__);	\
}										\
static const struct kernel_param_ops report_ops_##name = {			\
	.get = report_get_##name,						\
};										\
module_param_cb(name, &report_ops_##name, NULL, 0444)

#endif
