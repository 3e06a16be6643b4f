// SPDX-License-Identifier: GPL-2.0-only
// See failure.h.
#include "failure.h"
#include "runtime.h"

void fail(const char *what, const char *about)
{
	print(2, program_name);
	print(2, ": ");
	print(2, what);
	print(2, about);
	print(2, "\n");
	exit_program(2);
}
