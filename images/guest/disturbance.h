// SPDX-License-Identifier: GPL-2.0-only
// What else happens in the guest while calls are timed: interrupts, page faults, other tasks, a new second.
#ifndef DISTURBANCE_H
#define DISTURBANCE_H

#include <stdint.h>

// Batches that may be disturbed, one after the other, before the program fails.
enum { ATTEMPTS = 200 };

// When a second is new, gettimeofday itself takes a longer way: every call carries nanoseconds over into seconds, until
// a tick does it for all. Ticks account for time in whole tick lengths, so the first one in a second may not be enough.
struct disturbance {
	uint64_t interrupts;
	long faults, switches;
	int64_t second, nanosecond;
};

// To be called once, before the others. Where calls make IRQ work, it is no disturbance: what they write into a buffer
// wakes its reader by an interrupt of the CPU to itself.
void open_statistics(int makes_irq_work);
// What has happened until now.
struct disturbance count_disturbances(void);
// Whether nothing has happened in between but what each of the calls does itself: after some attempts, a fault or a task
// switch in each call counts as the calls' own. Before that, calls may touch memory that is new to them, once.
int is_undisturbed(const struct disturbance *before, const struct disturbance *after, long calls, int attempt);
// Returns right after a timer's tick, or some time later where there is none.
void wait_for_tick(void);

#endif
