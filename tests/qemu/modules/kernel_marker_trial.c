// SPDX-License-Identifier: GPL-2.0-only
/*
 * How does the host connect a probe to a marker of the kernel proper, and count its hits?
 *
 * "NAME FORMAT" written to "connect" connects the probe ("-" for one that checks
 * the format itself); NAME written to "disconnect" takes it away. "hits" counts,
 * since the load, the hits of all markers that are connected, and how many of
 * them received "number".
 */
#include <linux/lab/kernel_markers.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/stdarg.h>
#include <linux/string.h>
#include <linux/sysfs.h>

static long number = -1;
module_param(number, long, 0644);
static DEFINE_PER_CPU(unsigned long, all);
static DEFINE_PER_CPU(unsigned long, matching);
static char connected[64];

static void count(const char *format, ...)
{
	va_list arguments;

	this_cpu_inc(all);
	va_start(arguments, format);
	if (va_arg(arguments, long) == READ_ONCE(number))
		this_cpu_inc(matching);
	va_end(arguments);
}

static int connect(const char *text, const struct kernel_param *param)
{
	char name[64], format[64];
	int err;

	if (sscanf(text, "%63s %63[^\n]", name, format) != 2)
		return -EINVAL;
	err = kernel_marker_connect(name, strcmp(format, "-") ? format : NULL, count);
	if (!err)
		strscpy(connected, name, sizeof(connected));
	return err;
}

static int disconnect(const char *text, const struct kernel_param *param)
{
	char name[64];

	if (sscanf(text, "%63s", name) != 1)
		return -EINVAL;
	*connected = '\0';
	return kernel_marker_disconnect(name);
}

static int get_hits(char *page, const struct kernel_param *param)
{
	unsigned long sums[] = { 0, 0 };
	int cpu;

	for_each_possible_cpu(cpu) {
		sums[0] += per_cpu(all, cpu);
		sums[1] += per_cpu(matching, cpu);
	}
	return sysfs_emit(page, "%lu %lu\n", sums[0], sums[1]);
}

static const struct kernel_param_ops connect_ops = { .set = connect };
static const struct kernel_param_ops disconnect_ops = { .set = disconnect };
static const struct kernel_param_ops hits_ops = { .get = get_hits };
module_param_cb(connect, &connect_ops, NULL, 0200);
module_param_cb(disconnect, &disconnect_ops, NULL, 0200);
module_param_cb(hits, &hits_ops, NULL, 0444);

static int __init kernel_marker_trial_init(void)
{
	return 0;
}

static void __exit kernel_marker_trial_exit(void)
{
	if (*connected)
		kernel_marker_disconnect(connected);
}

module_init(kernel_marker_trial_init);
module_exit(kernel_marker_trial_exit);
MODULE_DESCRIPTION("Connects a probe to a marker of the kernel's");
MODULE_LICENSE("GPL");
