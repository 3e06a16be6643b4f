// SPDX-License-Identifier: GPL-2.0-only
// Calls a function of a shared library of its own, and two of the C library.
#include "workload.h"

void in_library(void);
void *malloc(size_t size);
void free(void *memory);

void workload_setup(void)
{
	free(malloc(64));
}

void workload(void)
{
	in_library();
	free(malloc(64));
}
