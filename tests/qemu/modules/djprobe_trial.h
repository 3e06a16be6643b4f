/* SPDX-License-Identifier: GPL-2.0-only */
/* What do the sources of the djprobe trials agree on? */
#ifndef LAB_DJPROBE_TRIAL_H
#define LAB_DJPROBE_TRIAL_H

long djprobe_invoke(long (*function)(long), long argument);

long djprobe_shape_blacklisted(long argument);
long djprobe_shape_label(long argument);
long djprobe_shape_static_call(long argument);

extern const long djprobe_constant;
extern int djprobe_counter;

#endif
