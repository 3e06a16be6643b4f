// SPDX-License-Identifier: GPL-2.0-only
/* Which markers does the kernel proper have, and how does a module reach them? */
#include <linux/export.h>
#include <linux/moduleparam.h>
#include <linux/lab/kernel_markers.h>

extern struct marker_site __start_kernel_markers[], __stop_kernel_markers[];

const struct marker_table kernel_markers = { __start_kernel_markers, __stop_kernel_markers };
EXPORT_SYMBOL_GPL(kernel_markers);

int kernel_marker_connect(const char *name, const char *format, marker_probe *probe)
{
	return marker_connect(&kernel_markers, name, format, probe);
}
EXPORT_SYMBOL_GPL(kernel_marker_connect);

int kernel_marker_disconnect(const char *name)
{
	return marker_disconnect(&kernel_markers, name);
}
EXPORT_SYMBOL_GPL(kernel_marker_disconnect);

/* /sys/module/kernel_markers/parameters/list, so that nobody needs a module to look. */
static int get_list(char *page, const struct kernel_param *param)
{
	return marker_list(&kernel_markers, page);
}

static const struct kernel_param_ops list_ops = { .get = get_list };
module_param_cb(list, &list_ops, NULL, 0400);
