// SPDX-License-Identifier: GPL-2.0-only
// A trial of the maps of BPF programs: whether hits put something into maps that were full, or use ones that only user
// space can fill and has not.
//
// A map that is full refuses what a hit puts into it, and nothing tells that afterwards. So room is made first, where
// there is none: whatever is in it behind some calls would have been refused before.
#ifndef MAP_TRIAL_H
#define MAP_TRIAL_H

#include "bpf_abi.h"

// The maps of a program, and of those that it may go on in. Returns a negative errno.
long watch_maps(int program);
// Of programs that nobody attends, user space's part is tried as well: rings are drained. Perf event arrays are their
// reader's (map_reader.h). Returns how many maps are tried.
int make_room(int attended);
// Writes a line for each of them:
//   TYPE ID ENTRIES USED EACH SHORT NEW NAME
// USED: keys, elements or bytes before the calls; EACH: of the largest at once. SHORT: 1 where the map was full then, or
// nobody attended it, or it is of an LRU type and keys of it are gone; or why it was not tried:
//   memory     it takes more than 32 MiB to know what is in it, or it cannot be mapped
//   refused    the kernel refuses to read it, or to take something out
//   slots      it has more than 1048576 slots for maps or programs
//   events     a perf event for it does not open
//   maps, programs, unopened  of a map that is not known: there are more than 512, or the kernel does not open it
// NEW: what the calls have put into it, or tried to. Without a name, NAME is -.
void show_trial(int file);

struct map_use {
	struct map_info info;
	uint64_t used, each, came;
	int is_short;
	const char *untried;
};

// Writes such a line.
void show_use(int file, const struct map_use *use);

#endif
