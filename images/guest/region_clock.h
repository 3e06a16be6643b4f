// SPDX-License-Identifier: GPL-2.0-only
// Readings of the TSC at which QEMU's counting plugin begins and ends a region.
//
// The marks are outside of what is timed, as is the instruction that shows where code is: in front of the first reading,
// and behind the second.
#ifndef REGION_CLOCK_H
#define REGION_CLOCK_H

#ifdef __KERNEL__
#include <linux/types.h>
#else
#include <stdint.h>
#endif

#include "region.h"

static inline uint64_t begin_region(void)
{
	uint32_t low, high;

	__asm__ volatile(REGION_SELF REGION_MARK(REGION_BEGIN) "rdtsc" : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

static inline uint64_t end_region(void)
{
	uint32_t low, high;

	__asm__ volatile("rdtsc\n\t" REGION_MARK(REGION_END) : "=a"(low), "=d"(high));
	return (uint64_t)high << 32 | low;
}

#endif
