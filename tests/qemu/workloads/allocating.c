// SPDX-License-Identifier: GPL-2.0-only
// Calls functions of the C library.
#include "workload.h"

void *malloc(size_t size);
void free(void *memory);

void workload(void)
{
	free(malloc(64));
}
