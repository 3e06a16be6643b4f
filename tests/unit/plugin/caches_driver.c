// SPDX-License-Identifier: GPL-2.0-only
// Feeds the cache models with what its input says, and prints what they missed. Arguments: the caches, as the plugin's.
//
// Input, one line each: WHAT INDEX ADDRESS PHYSICAL SIZE, numbers in hex. WHAT is
//   begin, end, empty       a region begins, ends; all caches are emptied; its numbers mean nothing
//   fetch, load, store      a load or store is on one page
//   device                  an access to no memory
#include <stdio.h>
#include <string.h>

#include "caches.h"

enum { INDEXES = 16 };

static void act(const char *what, uint32_t index, uint64_t address, uint64_t physical, uint32_t size)
{
	if (!strcmp(what, "begin")) {
		forget_kept_misses(INDEXES);
		begin_misses(INDEXES);
	} else if (!strcmp(what, "end")) {
		end_misses(INDEXES);
		keep_misses(INDEXES);
	} else if (!strcmp(what, "empty"))
		empty_caches();
	else if (!strcmp(what, "fetch"))
		fetch(index, address, physical, size);
	else {
		translate(index, address);
		if (strcmp(what, "device"))
			access_data(index, address, physical, size, !strcmp(what, "store"));
	}
}

int main(int argc, char **argv)
{
	unsigned long address, physical;
	unsigned int index, size;
	char what[8];

	for (int i = 1; i < argc; i++)
		if (!add_cache(argv[i]))
			return 1;
	if (!has_caches())
		return 2;
	while (scanf("%7s %x %lx %lx %x", what, &index, &address, &physical, &size) == 5)
		act(what, index, address, physical, size);
	for (int cache = 0; cache < CACHES; cache++) {
		struct lookups lookups = kept_lookups((enum cache)cache);

		printf("%s %lu %lu\n", cache_names[cache], (unsigned long)lookups.hits, (unsigned long)lookups.misses);
	}
	for (uint32_t i = 0; i < INDEXES; i++) {
		const uint64_t *misses = misses_of(i);

		printf("%u", i);
		for (int miss = 0; miss < MISSES; miss++)
			printf(" %lu", misses ? (unsigned long)misses[miss] : 0ul);
		printf("\n");
	}
	return 0;
}
