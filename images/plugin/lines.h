// SPDX-License-Identifier: GPL-2.0-only
// Which lines of memory do several CPUs use, and how often does one move from one CPU's cache to another's?
//
// Each CPU has a cache with room for everything, so a line is lost to it only where another CPU writes to it. A line moves
// where a CPU accesses one that another has written since its own last access. It is contended where in a window several
// CPUs access it and one of them writes: however accesses are interleaved, no line moves more often than it is accessed.
#ifndef LINES_H
#define LINES_H

#include <stdbool.h>
#include <stdint.h>

enum { CPUS = 16, LINE_SIZE = 64 };

// Empties all caches, and forgets all accesses.
void forget_lines(void);
// A CPU accesses memory. In a window its accesses count. Returns how many lines move; false in is_room if one is not known
// for want of room.
uint32_t access_lines(unsigned int cpu, uint64_t physical, uint32_t size, bool is_store, bool in_window, bool *is_room);
// The accesses of a CPU to contended lines of the window, and how many such lines there are.
uint64_t contended_accesses(unsigned int cpu);
uint32_t contended_lines(void);

#endif
