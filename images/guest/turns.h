// SPDX-License-Identifier: GPL-2.0-only
// Calls of a process on each of several CPUs, which take turns after each call: for images/plugin/cpus.c.
#ifndef TURNS_H
#define TURNS_H

#include "bench.h"

// Prints a line for each batch: one of a fifth of the calls, then the others, each of so many calls of each process.
void run_turns(const struct bench *bench, long cpus, long calls, long repeats);

#endif
