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

// As the kernel's own rdtsc() does on i386: a module's figures are as without marks.
#if defined(__KERNEL__) && defined(__i386__)
#define READING uint64_t now
#define READ_TO "=A"(now)
#define READ_AS now
#else
#define READING uint32_t low, high
#define READ_TO "=a"(low), "=d"(high)
#define READ_AS ((uint64_t)high << 32 | low)
#endif

static inline uint64_t begin_region(void)
{
	READING;

	__asm__ volatile(REGION_SELF REGION_MARK(REGION_BEGIN) "rdtsc" : READ_TO);
	return READ_AS;
}

static inline uint64_t end_region(void)
{
	READING;

	__asm__ volatile("rdtsc\n\t" REGION_MARK(REGION_END) : READ_TO);
	return READ_AS;
}

#endif
