// SPDX-License-Identifier: GPL-2.0-only
// What a C file of your own defines to be measured: workload(), which is called again and again. It has no C library;
// runtime.h has system calls (sys0 to sys5), memcpy, memset and text output.
#ifndef WORKLOAD_H
#define WORKLOAD_H

#include "runtime.h"

// One call: what is timed, and what enters the probe point as often as the key `hits` sets (once by default).
// It must do the same each time. What the kernel does besides in some calls, such as to fetch a slab, is measured apart.
void workload(void);

// Called once, before anything is timed or counted. Need not be defined.
void workload_setup(void);

#endif
