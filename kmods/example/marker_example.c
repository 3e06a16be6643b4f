// SPDX-License-Identifier: GPL-2.0-only
/*
 * How are markers passed, and how does a probe see them? This module has both:
 *
 *	$ insmod marker.ko
 *	$ insmod marker_example.ko
 *	$ cd /sys/module/marker_example/parameters
 *	$ echo 3 >pass; cat sum		# 0: nothing is connected
 *	$ echo 1 >connected
 *	$ echo 3 >pass; cat sum		# 6 = 1 + 2 + 3
 *	$ cat markers
 *
 * What a module with markers has to do:
 *
 * * MARKERS(table) once in each file that has markers, before the first of them.
 *   The table is a static variable, and has the markers of this file alone.
 * * MARK(name, format, arguments...) as a statement, in any function. The name is
 *   an identifier without quotes, and marker_connect() takes it as a string. The
 *   format is a string literal. Arguments are evaluated only while a probe is
 *   connected, so they must have no side effect that is needed.
 * * Disconnect in the exit function, when nothing passes the markers any more.
 *
 * A probe has the marker's format and arguments, and reads them with va_arg() in the
 * types that the format names; a wrong type reads something else. It does not get the
 * marker's name. Interrupts are as they are at the marker.
 *
 * marker_list() writes a line for each place in the code:
 *
 *	NAME FLAVOUR CONNECTED LOAD FLAG FORMAT
 *	example_passed optimized connected ffffffffc0202011 ffffffffc0204010 %u %s
 *
 * FLAVOUR is "optimized" or "generic", CONNECTED "connected" or "-". LOAD is the address
 * of the instruction "mov $0, al" whose second byte becomes 1, all zeros with the generic
 * flavour. FLAG is the address of the byte that the generic flavour loads. An inlined
 * function has a line for each copy of its marker.
 *
 * Kernels with markers of their own ("-markers") declare this in linux/lab/kernel_markers.h,
 * for which no MARKERS() is needed:
 *
 *	kernel_marker_connect("kernel_syscall_entry", KERNEL_MARK_FORMAT, probe);
 *	kernel_marker_disconnect("kernel_syscall_entry");
 */
#include <linux/module.h>
#include <linux/stdarg.h>
#include <linux/sysfs.h>

#include "marker.h"

MARKERS(example_markers);

static atomic_long_t sum;
static bool connected;

static void add_number(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	atomic_long_add(va_arg(arguments, unsigned int), &sum);
	va_end(arguments);
}

/* The kernel has a lock on a module's parameters, so two writers are never here at once. */
static int connect(const char *text, const struct kernel_param *param)
{
	bool wanted;
	int err = kstrtobool(text, &wanted);

	if (err || wanted == connected)
		return err;
	err = wanted ? marker_connect(&example_markers, "example_passed", "%u %s", add_number) :
		       marker_disconnect(&example_markers, "example_passed");
	if (!err)
		connected = wanted;
	return err;
}

static int pass(const char *text, const struct kernel_param *param)
{
	unsigned int times, number;
	int err = kstrtouint(text, 0, &times);

	if (err)
		return err;
	for (number = 1; number <= times; number++)
		MARK(example_passed, "%u %s", number, param->name);
	return 0;
}

static int get_sum(char *page, const struct kernel_param *param)
{
	return sysfs_emit(page, "%ld\n", atomic_long_read(&sum));
}

static int get_markers(char *page, const struct kernel_param *param)
{
	return marker_list(&example_markers, page);
}

static const struct kernel_param_ops connected_ops = { .set = connect, .get = param_get_bool };
static const struct kernel_param_ops pass_ops = { .set = pass };
static const struct kernel_param_ops sum_ops = { .get = get_sum };
static const struct kernel_param_ops markers_ops = { .get = get_markers };
module_param_cb(connected, &connected_ops, &connected, 0644);
MODULE_PARM_DESC(connected, "whether the probe is connected");
module_param_cb(pass, &pass_ops, NULL, 0200);
MODULE_PARM_DESC(pass, "how often to pass the marker, with 1, 2, ...");
module_param_cb(sum, &sum_ops, NULL, 0444);
MODULE_PARM_DESC(sum, "of the numbers that the probe was passed");
module_param_cb(markers, &markers_ops, NULL, 0400);
MODULE_PARM_DESC(markers, "where the markers are");

static int __init marker_example_init(void)
{
	return 0;
}

static void __exit marker_example_exit(void)
{
	if (connected)
		marker_disconnect(&example_markers, "example_passed");
}

module_init(marker_example_init);
module_exit(marker_example_exit);
MODULE_DESCRIPTION("Passes a marker, and adds up what its probe gets");
MODULE_LICENSE("GPL");
