/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What does a probe module report to the host, in /sys/module/NAME/parameters/? A
 * module that includes this has these parameters, and defines "report", which they
 * call:
 *
 *	hits		(read) hits that the counting handler has counted for "caller"
 *	others		(read) those of all other processes
 *	missed		(read) hits for which the handler could not run: report.missed()
 *	counts		(read) all three
 *	address		(read) where the probe is: report.address()
 *	handler		(read, write) noop, count, record or stack: what a hit does
 *	caller		(read, write) the process whose hits count; 0: all, -1: none
 *
 * Choosing any handler but "noop" empties the counters and the rings (ring.h). Who writes
 * "noop" waits until no handler counts or records any more. "handler" and "caller" may
 * be given when the module is loaded. The others answer ENODEV until the init function
 * has ended, and once the exit function has begun.
 */
#ifndef LAB_REPORT_H
#define LAB_REPORT_H

#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/sysfs.h>

#include "report_life.h"

/**
 * enum handler - what a hit does
 * @HANDLER_NOOP: nothing
 * @HANDLER_COUNT: increment a counter, by count_hit()
 * @HANDLER_RECORD: record an event, by record_event() or record_registers() of ring.h
 * @HANDLER_STACK: record the stack, by record_stack() of ring.h
 */
enum handler {
	HANDLER_NOOP,
	HANDLER_COUNT,
	HANDLER_RECORD,
	HANDLER_STACK,
};

/**
 * struct report - what a module tells of its probe
 * @address: where the probe is: a kprobe's address, a site, a pointer
 * @missed: hits for which the kernel could not run the handler, such as nmissed of a kprobe
 * @select_handler: sends hits to one of the handlers; touches nothing else
 * @traces_stacks: whether the module has HANDLER_STACK; false where this is not set
 *
 * The module's main file defines "const struct report report" with the first three, by PROBE_REPORT().
 * Handlers run with preemption off. A negative errno of select_handler(), which the writer
 * of the parameter gets, leaves the handler before: -EOPNOTSUPP where the module has none
 * of that kind. It may be called before the module's init function, not once its exit
 * function has begun and report_end() has returned.
 */
struct report {
	unsigned long (*address)(void);
	unsigned long (*missed)(void);
	int (*select_handler)(enum handler handler);
	bool traces_stacks;
};

extern const struct report report;

/* The process whose hits are counted; 0: all processes, -1: none. */
extern int report_caller;

DECLARE_PER_CPU(unsigned long, report_hits);
/* Hits of all others. */
DECLARE_PER_CPU(unsigned long, report_others);

/**
 * count_hit() - count a hit, for the process that the host has named or for others
 *
 * For counting handlers. One instruction on the CPU's own counter: no hit is lost to
 * another CPU, an interrupt or an NMI.
 *
 * Context: any.
 */
static __always_inline void count_hit(void)
{
	int caller = READ_ONCE(report_caller);

	if (!caller || caller == current->tgid)
		this_cpu_inc(report_hits);
	else
		this_cpu_inc(report_others);
}

/**
 * HANDLERS() - initialise an array that has an element for each handler
 * @noop: the handler that does nothing
 * @count: the one that counts
 * @record: the one that records an event
 * @stack: the one that records the stack
 */
#define HANDLERS(noop, count, record, stack)					\
{										\
	[HANDLER_NOOP] = noop,							\
	[HANDLER_COUNT] = count,						\
	[HANDLER_RECORD] = record,						\
	[HANDLER_STACK] = stack,						\
}

/**
 * SELECT_HANDLER() - define select_handler() for a probe that calls its handler by a pointer
 * @pointer: such as kp.pre_handler
 * @...: the handlers, as for HANDLERS()
 */
#define SELECT_HANDLER(pointer, ...)						\
static int select_handler(enum handler handler)					\
{										\
	static const typeof(pointer) handlers[] = HANDLERS(__VA_ARGS__);	\
										\
	WRITE_ONCE(pointer, handlers[handler]);					\
	return 0;								\
}

/**
 * PROBE_REPORT() - define "report"
 * @place: where the probe is, an unsigned long; evaluated while the module is in use only
 * @not_run: hits for which the kernel could not run the handler; likewise
 * @...: the other members of "report": .select_handler, .traces_stacks
 */
#define PROBE_REPORT(place, not_run, ...)					\
static unsigned long address(void)						\
{										\
	return place;								\
}										\
										\
static unsigned long missed(void)						\
{										\
	return not_run;								\
}										\
										\
const struct report report = {							\
	.address = address,							\
	.missed = missed,							\
	__VA_ARGS__								\
}

/**
 * REPORT_VALUE() - define a read-only parameter
 * @name: of the parameter
 * @format: of one line, as for printk(), without a line break
 * @...: its values, evaluated while the module is in use only
 */
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
