// SPDX-License-Identifier: GPL-2.0-only
/*
 * How does the host connect probes to markers, and see their arguments?
 *
 * "NAME FORMAT" written to "connect" connects the probe to a marker ("-" for a
 * probe that checks the format itself); NAME written to "disconnect" takes it
 * away. How often written to <debugfs>/marker_trial/pass passes all markers so
 * often, with "number"; "received" is the probe's last arguments, "hits" how often
 * on each CPU, with a line for each first word of a format. "markers" lists them.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/percpu.h>
#include <linux/sched.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/stdarg.h>

#include "marker.h"

MARKERS(trial_markers);

static long number = 20;
module_param(number, long, 0644);
static const char *const words[] = { "optimized", "generic", "inline", "last", "twice" };
static DEFINE_PER_CPU(unsigned long [ARRAY_SIZE(words)], hits);
static char received[128];

static void trial_probe(const char *format, ...)
{
	va_list arguments;
	int i;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		if (*words[i] == *format)
			this_cpu_inc(hits[i]);
	va_start(arguments, format);
	vscnprintf(received, sizeof(received), format, arguments);
	va_end(arguments);
}

/* Twice in the code: both places are the marker's. */
static __always_inline long pass_inline(long value)
{
	MARK(trial_inline, "inline %ld", value);
	return value + 1;
}

static noinline long pass_first(long value)
{
	return pass_inline(value);
}

static noinline long pass_second(long value)
{
	return pass_inline(value) * 2;
}

/* Two markers of one name, and an argument that is named like nothing of the header's. */
static noinline long pass_third(long mark)
{
	MARK(trial_twice, "twice %ld", mark);
	return mark;
}

static noinline long pass_fourth(long mark)
{
	MARK_GENERIC(trial_twice, "twice %ld", mark);
	return mark;
}

static noinline void pass_differing(long value)
{
	MARK(trial_differing, "differing %ld", value);
	MARK(trial_differing, "differing %s", "text");
}

static noinline long pass_all(long value)
{
	long result;

	MARK(trial_optimized, "optimized %ld %s", value, "text");
	MARK_GENERIC(trial_generic, "generic %ld", value);
	result = pass_first(value) + pass_second(value);
	result += pass_third(value) - pass_fourth(value);
	pass_differing(value);
	MARK(trial_last, "last");
	return result;
}

/* No parameter: those of a module are written one at a time, and this is the load. */
static int pass(void *unused, u64 times)
{
	for (; times; times--) {
		if (pass_all(number) != (number + 1) * 3)
			return -EIO;
		cond_resched();
	}
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(pass_fops, NULL, pass, "%llu\n");

static int connect(const char *text, const struct kernel_param *param)
{
	char name[64], format[64];

	if (sscanf(text, "%63s %63[^\n]", name, format) != 2)
		return -EINVAL;
	return marker_connect(&trial_markers, name, strcmp(format, "-") ? format : NULL, trial_probe);
}

static int disconnect(const char *text, const struct kernel_param *param)
{
	char name[64];

	if (sscanf(text, "%63s", name) != 1)
		return -EINVAL;
	return marker_disconnect(&trial_markers, name);
}

static int get_markers(char *page, const struct kernel_param *param)
{
	return marker_list(&trial_markers, page);
}

static int get_received(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, "%s\n", received);
}

static int get_hits(char *page, const struct kernel_param *param)
{
	int i, cpu, size = 0;

	for (i = 0; i < ARRAY_SIZE(words); i++) {
		size += sysfs_emit_at(page, size, "%s", words[i]);
		for_each_online_cpu(cpu)
			size += sysfs_emit_at(page, size, " %lu", per_cpu(hits[i], cpu));
		size += sysfs_emit_at(page, size, "\n");
	}
	return size;
}

static const struct kernel_param_ops connect_ops = { .set = connect };
static const struct kernel_param_ops disconnect_ops = { .set = disconnect };
static const struct kernel_param_ops markers_ops = { .get = get_markers };
static const struct kernel_param_ops received_ops = { .get = get_received };
static const struct kernel_param_ops hits_ops = { .get = get_hits };
module_param_cb(connect, &connect_ops, NULL, 0200);
module_param_cb(disconnect, &disconnect_ops, NULL, 0200);
module_param_cb(markers, &markers_ops, NULL, 0400);
module_param_cb(received, &received_ops, NULL, 0444);
module_param_cb(hits, &hits_ops, NULL, 0444);

static struct dentry *folder;

static int __init marker_trial_init(void)
{
	folder = debugfs_create_dir("marker_trial", NULL);
	debugfs_create_file("pass", 0200, folder, NULL, &pass_fops);
	return 0;
}

static void __exit marker_trial_exit(void)
{
	const struct marker_site *site;

	debugfs_remove(folder);
	for (site = trial_markers.begin; site < trial_markers.end; site++)
		marker_disconnect(&trial_markers, site->marker->name);
}

module_init(marker_trial_init);
module_exit(marker_trial_exit);
MODULE_DESCRIPTION("Markers for the host to connect to");
MODULE_LICENSE("GPL");
