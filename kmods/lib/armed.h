/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * How does the host read a place that only the module can find, before and after
 * the probe is there? The module is loaded without its probe, reports the place as
 * its address, and registers or unregisters the probe when the host writes its
 * parameter "armed".
 */
#ifndef LAB_ARMED_H
#define LAB_ARMED_H

#include <linux/types.h>

/* Each module that the host arms defines these; both may sleep. */
int arm(void);
void disarm(void);

/* For the module's exit function. On return the probe is out, and nobody can arm it again. May sleep. */
void armed_end(void);

bool is_armed(void);

#endif
