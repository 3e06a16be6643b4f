// SPDX-License-Identifier: GPL-2.0-only
// A static point with each nop, and functions that begin with them. See uprobes.yaml.
#include "usdt.h"
#include "workload.h"

#define BEGINS_WITH(nop, name)					\
void name(void);						\
__attribute__((naked, noinline)) void name(void)		\
{								\
	__asm__ volatile(nop "\n	ret");			\
}

BEGINS_WITH(USDT_NOP, begins1)
BEGINS_WITH(USDT_NOP5, begins5)
BEGINS_WITH(USDT_NOP10, begins10)
BEGINS_WITH(USDT_NOP10, never_called)

void workload(void)
{
	USDT_AT(USDT_NOP, lab, nop1);
	USDT_AT(USDT_NOP5, lab, nop5);
	USDT_AT(USDT_NOP10, lab, nop10);
	begins1();
	begins5();
	begins10();
}
