// SPDX-License-Identifier: GPL-2.0-only
// The BPF programs that the lab measures, and the one that bears witness to their hits.
#ifndef PROGRAMS_H
#define PROGRAMS_H

#include "bpf_abi.h"

enum { COUNTS, DROPPED, SLOTS };	// of the per-CPU array
enum { MOST_INSTRUCTIONS = 64 };
enum { EVENT_SIZE = 64, EVENT_ARGUMENTS = 6 };	// as of struct ring_event (kmods/lib/ring.h)

// What a program finds in its context, and how it gets there; numbered as Context of orchestrator/catalog/probes.py.
enum context { REGISTERS, WORDS, RECORD, NO_CONTEXT };

// Each writes a program to the room for MOST_INSTRUCTIONS and returns its length.
// Does nothing.
uint32_t write_noop(struct instruction *to);
// Counts in slot COUNTS of a per-CPU array, as a program of the user's does.
uint32_t write_count(struct instruction *to, int counts);
// Counts in slot COUNTS of an array that all CPUs share: atomically, which the compiler for i386 refuses.
uint32_t write_count_shared(struct instruction *to, int counts);
// Writes an event to the ring, and counts those that do not fit in slot DROPPED. Its arguments are what the context has:
// the registers ip, ax, dx, cx (i386) or ip, di, si, dx, cx, ax; or so many words.
uint32_t write_record(struct instruction *to, int ring, int counts, enum context context, uint32_t words);
// The same, with a stack trace: the last argument is its number in the map of stacks, or a negative errno.
uint32_t write_stack(struct instruction *to, int ring, int counts, enum context context, uint32_t words, int stacks,
		     uint32_t flags);
// Counts by process in a hash.
uint32_t write_witness(struct instruction *to, int hits);

#endif
