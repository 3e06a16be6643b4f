/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The markers of the kernel proper: how they are placed, and how a module's
 * probe is connected to one by its name.
 */
#ifndef _LINUX_LAB_KERNEL_MARKERS_H
#define _LINUX_LAB_KERNEL_MARKERS_H

#include <linux/lab/marker.h>

/* Each tells its probe a number and a pointer, so that one probe can serve them all. */
#define KERNEL_MARK_FORMAT "%ld %p"

#ifdef CONFIG_LAB_MARKERS
#define KERNEL_MARK(name, number, pointer)					\
	MARK(name, KERNEL_MARK_FORMAT, (long)(number), (const void __force *)(pointer))
#else
#define KERNEL_MARK(name, number, pointer)	do { } while (0)
#endif

/* All the kernel's markers. Modules connect to them by the two functions below only. */
extern const struct marker_table kernel_markers;

/* As the functions of marker.h, for that table. */
int kernel_marker_connect(const char *name, const char *format, marker_probe *probe);
int kernel_marker_disconnect(const char *name);

#endif
