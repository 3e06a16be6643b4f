// SPDX-License-Identifier: GPL-2.0-only
// The results of calls: how many failed, the last value, and the first distinct values with their numbers of calls.
#ifndef RESULTS_H
#define RESULTS_H

#include "runtime.h"

enum { KEPT_VALUES = 8 };

struct results {
	long observed, failed;
	long before_failure;	// calls before the first failure; all if none failed
	long other;		// calls with values that are not kept
	unsigned long last;
	int kept;
	struct {
		unsigned long value;
		long calls;
	} values[KEPT_VALUES];	// in the order of their first calls
};

void note_result(struct results *results, long result);
// A line: "results NAME observed=N failed=F before=B other=O last=0xR values=0xV:C,0xV:C"; no values without calls.
void print_results(const char *name, const struct results *results);

#endif
