// SPDX-License-Identifier: GPL-2.0-only
// What would miss in a CPU's caches and TLBs?
//
// Models with LRU: instruction and data caches of level 1, a unified level 2 that is asked where one of them misses, and
// a TLB for instructions and one for data. A store allocates as a load does. A level 1 set is chosen by the virtual
// address and holds physical lines, level 2 is physical, a TLB virtual; all pages have the TLB's size. There is no
// prefetching, no write-back, no page walk, and what one level has does not depend on the other.
#ifndef CACHES_H
#define CACHES_H

#include <stdbool.h>
#include <stdint.h>

enum cache { L1I, L1D, L2, ITLB, DTLB, CACHES };
enum miss { L1I_FETCH, L1D_LOAD, L1D_STORE, L2_ANY, ITLB_FETCH, DTLB_ANY, MISSES };

extern const char *const cache_names[CACHES];

struct lookups {
	uint64_t hits, misses;
};

// NAME=SIZE:WAYS:LINE, in bytes; a TLB's line is its page. False where it is no such argument, or no cache of 1, 2, 4, ...
// sets.
bool add_cache(const char *argument);
// All of them have been added.
bool has_caches(void);
void empty_caches(void);

// The instruction with this index is fetched. Of one that crosses a page only the first part is looked up: the rest is
// fetched with the next one.
void fetch(uint32_t index, uint64_t address, uint64_t physical, uint32_t size);
// It accesses data on one page, a device's too; and memory there.
void translate(uint32_t index, uint64_t address);
void access_data(uint32_t index, uint64_t address, uint64_t physical, uint32_t size, bool is_store);

// A region: begin and end it, then add it to what is kept: what was looked up in each cache, and how often each
// instruction missed.
void begin_misses(uint32_t instructions);
void end_misses(uint32_t instructions);
void keep_misses(uint32_t instructions);
void forget_kept_misses(uint32_t instructions);
struct lookups kept_lookups(enum cache cache);
// NULL where it never missed.
const uint64_t *misses_of(uint32_t index);

#endif
