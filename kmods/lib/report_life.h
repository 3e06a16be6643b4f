/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * When may a parameter's function use what the module's init function prepares?
 *
 * Parameters are in sysfs before the module's init function runs, and after its
 * exit function has.
 */
#ifndef LAB_REPORT_LIFE_H
#define LAB_REPORT_LIFE_H

#include <linux/errno.h>
#include <linux/module.h>
#include <linux/moduleparam.h>

/* For a parameter's function, which has the kernel's lock on them: -ENODEV where the module is not in use. */
static inline int report_usable(void)
{
	return READ_ONCE(THIS_MODULE->state) == MODULE_STATE_LIVE ? 0 : -ENODEV;
}

/*
 * The first thing in an exit function that takes away what parameters use: on
 * return no parameter's function is using it, nor will one.
 */
static inline void report_end(void)
{
	kernel_param_lock(THIS_MODULE);
	kernel_param_unlock(THIS_MODULE);
}

#endif
