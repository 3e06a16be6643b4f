// SPDX-License-Identifier: GPL-2.0-only
// The description of the calls that a program has timed; see bench.c.
#ifndef BENCH_H
#define BENCH_H

#include "runtime.h"

// Calls before the first batch.
enum { WARM_UP_CALLS = 100 };

struct bench {
	const char *entry;	// how the call enters the kernel
	const long *number;	// the system call's number, as its loop loads it; NULL if no system call is timed
	// Makes the calls, in as many equal rounds and a constant number of instructions; returns the last one's result.
	long (*loop)(long calls);
	// Ends the program if a call with this result did not do what is to be measured.
	void (*check)(long result);
	// Takes one of the program's own options; returns 0 for any other option.
	int (*take_option)(const char *option, const char *value);
	// After all options, before the first call.
	void (*prepare)(void);
	// Prints further fields of the calls, each after a blank.
	void (*print_called)(void);
};

// Does what the options ask for. Returns the program's exit status.
int run_bench(struct bench *bench, int argc, char **argv);

#endif
