// SPDX-License-Identifier: GPL-2.0-only
// The monotonic clock, in nanoseconds, and the readings of it that precede what QEMU's plugin counts.
#ifndef CLOCK_H
#define CLOCK_H

#include "region.h"
#include "runtime.h"

enum { CLOCK_MONOTONIC = 1 };
// Readings of the clock until QEMU's plugin surely counts.
enum { WARM_UP_READINGS = 100 };

// Inlined, so that a region with readings in it takes as many instructions in each program.
static inline uint64_t read_clock(void)
{
	int64_t now[2] = {0, 0};

	sys2(SYS_clock_gettime64, CLOCK_MONOTONIC, now);
	return (uint64_t)now[0] * 1000000000u + (uint64_t)now[1];
}

static inline void arm_counting(void)
{
	__asm__ volatile(REGION_MARK(REGION_ARM));
	for (int i = 0; i < WARM_UP_READINGS; i++)
		read_clock();
}

#endif
