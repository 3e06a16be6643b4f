// SPDX-License-Identifier: GPL-2.0-only
// See results.h.
#include "results.h"

// The kernel returns a failure as a negative errno, and no success has such a value (IS_ERR_VALUE(), linux/err.h).
enum { MAX_ERRNO = 4095 };

void note_result(struct results *results, long result)
{
	int at = 0;

	if (result < 0 && result >= -MAX_ERRNO)
		results->failed++;
	if (!results->failed)
		results->before_failure++;
	results->observed++;
	results->last = (unsigned long)result;
	while (at < results->kept && results->values[at].value != results->last)
		at++;
	if (at == KEPT_VALUES) {
		results->other++;
		return;
	}
	if (at == results->kept)
		results->values[results->kept++].value = results->last;
	results->values[at].calls++;
}

void print_results(const char *name, const struct results *results)
{
	print(1, "results ");
	print(1, name);
	print_field(" observed=", (uint64_t)results->observed);
	print_field(" failed=", (uint64_t)results->failed);
	print_field(" before=", (uint64_t)results->before_failure);
	print_field(" other=", (uint64_t)results->other);
	print_word(" last=", results->last);
	print(1, " values=");
	for (int i = 0; i < results->kept; i++) {
		print_word(i ? "," : "", results->values[i].value);
		print_field(":", (uint64_t)results->values[i].calls);
	}
	print(1, "\n");
}
