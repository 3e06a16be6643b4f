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

/**
 * report_usable() - whether a parameter's function may use what the init function makes
 *
 * Context: in a parameter's function, which has the kernel's lock on them.
 * Return: 0; -ENODEV before the init function has ended, and once the exit function has begun.
 */
static inline int report_usable(void)
{
	return READ_ONCE(THIS_MODULE->state) == MODULE_STATE_LIVE ? 0 : -ENODEV;
}

/**
 * report_end() - wait until no parameter's function uses what the exit function takes away
 *
 * The first call of an exit function that takes it away. On return no parameter's
 * function is using it, nor will one.
 *
 * Context: may sleep.
 */
static inline void report_end(void)
{
	kernel_param_lock(THIS_MODULE);
	kernel_param_unlock(THIS_MODULE);
}

#endif
