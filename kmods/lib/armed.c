// SPDX-License-Identifier: GPL-2.0-only
/* How does the host register and unregister a module's probe? */
#include <linux/kstrtox.h>
#include <linux/moduleparam.h>
#include <linux/sysfs.h>

#include "armed.h"
#include "report.h"

static bool armed;

/* The kernel's lock on this module's parameters serialises writers. */
static int set_armed(const char *text, const struct kernel_param *param)
{
	bool wanted;
	int err = report_usable() ?: kstrtobool(text, &wanted);

	if (err || wanted == armed)
		return err;
	if (wanted)
		err = arm();
	else
		disarm();
	if (!err)
		armed = wanted;
	return err;
}

static int get_armed(char *line, const struct kernel_param *param)
{
	return sysfs_emit(line, "%d\n", armed);
}

static const struct kernel_param_ops armed_ops = {
	.set = set_armed,
	.get = get_armed,
};
module_param_cb(armed, &armed_ops, NULL, 0644);

bool is_armed(void)
{
	return armed;
}

void armed_end(void)
{
	kernel_param_lock(THIS_MODULE);
	if (armed)
		disarm();
	armed = false;
	kernel_param_unlock(THIS_MODULE);
}
