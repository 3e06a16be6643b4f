// SPDX-License-Identifier: GPL-2.0-only
// Calls a function of its own once in every call.

static volatile int calls;

__attribute__((noinline)) void inner(void);
void inner(void)
{
	calls++;
}

void workload(void)
{
	inner();
	__asm__ volatile("");
}
