// SPDX-License-Identifier: GPL-2.0-only
// What a program says of the calls that it wants timed; see bench.c.
#ifndef BENCH_H
#define BENCH_H

#include "runtime.h"

// Calls before the first batch.
enum { WARM_UP_CALLS = 100 };

struct bench {
	const char *entry;	// the way a call goes
	const long *number;	// the system call's, as its loop loads it; NULL where no system call is timed
	// Makes so many calls in exactly as many equal rounds and a constant; returns what the last one returned.
	long (*loop)(long calls);
	// Fails where a call that returned this did not do what is to be measured.
	void (*check)(long result);
	// Whether it is an option of the program's own.
	int (*take_option)(const char *option, const char *value);
	// After all options, before the first call.
	void (*prepare)(void);
	// What else to tell of the calls, each with a blank before it.
	void (*print_called)(void);
};

// Does what the options ask for. Returns the program's exit status.
int run_bench(struct bench *bench, int argc, char **argv);

#endif
