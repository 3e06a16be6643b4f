// SPDX-License-Identifier: GPL-2.0-only
// See caches.h.
#include "caches.h"
#include "host.h"
#include "records.h"

enum { LINES = 1 << 19, LARGEST = 1 << 30, PAGE = 4096, LONGEST_NUMBER = 9 };

struct model {
	uint64_t *lines;	// of each set the line used last first; one more than its number, 0 is free
	uint64_t line, ways, sets;
	int shift;		// a line has 1 << shift bytes
	struct lookups all, before, region, kept;
};

struct missed {
	uint64_t counts[MISSES];
};

const char *const cache_names[CACHES] = {"l1i", "l1d", "l2", "itlb", "dtlb"};
static uint64_t lines[LINES], used_lines;
static struct model models[CACHES];
static struct missed missed[RECORDS], before[RECORDS], region[RECORDS], kept[RECORDS];

// The number at *text, which is moved behind it and a colon; 0 where there is none.
static uint64_t take_number(const char **text)
{
	uint64_t number = 0;
	int digits = 0;

	for (; **text >= '0' && **text <= '9' && digits <= LONGEST_NUMBER; digits++)
		number = number * 10 + (uint64_t)(*(*text)++ - '0');
	if (**text == ':')
		++*text;
	return digits <= LONGEST_NUMBER ? number : 0;
}

static bool is_power_of_two(uint64_t number)
{
	return number && !(number & (number - 1));
}

static bool describe(struct model *model, const char *geometry)
{
	uint64_t size = take_number(&geometry), ways = take_number(&geometry), line = take_number(&geometry);
	uint64_t sets = ways && line ? size / line / ways : 0;

	if (model->sets || *geometry || size > LARGEST || ways > LINES || size != sets * ways * line ||
	    !is_power_of_two(sets) || !is_power_of_two(line) || used_lines + sets * ways > LINES)
		return false;
	*model = (struct model){.lines = lines + used_lines, .line = line, .ways = ways, .sets = sets};
	model->shift = __builtin_ctzl(line);
	used_lines += sets * ways;
	return true;
}

bool add_cache(const char *argument)
{
	for (int cache = 0; cache < CACHES; cache++) {
		const char *name = cache_names[cache], *at = argument;

		while (*name && *name == *at)
			name++, at++;
		if (!*name && *at == '=')
			return describe(models + cache, at + 1);
	}
	return false;
}

bool has_caches(void)
{
	for (int cache = 0; cache < CACHES; cache++)
		if (!models[cache].sets)
			return false;
	return true;
}

void empty_caches(void)
{
	for (uint64_t i = 0; i < used_lines; i++)
		lines[i] = 0;
}

// Whether a line is in the set of an address; then it is the one used last.
static bool look_up(struct model *model, uint64_t address, uint64_t physical)
{
	uint64_t *set = model->lines + (address >> model->shift & (model->sets - 1)) * model->ways;
	uint64_t wanted = (physical >> model->shift) + 1, moved = wanted;

	for (uint64_t way = 0; way < model->ways; way++) {
		uint64_t found = set[way];

		set[way] = moved;
		if (found == wanted) {
			model->all.hits++;
			return true;
		}
		moved = found;
	}
	model->all.misses++;
	return false;
}

// All lines of an access within a page.
static void look_up_lines(struct missed *counts, enum cache cache, enum miss miss, uint64_t address, uint64_t physical,
			  uint32_t size)
{
	struct model *model = models + cache;
	uint64_t start = address & ~(model->line - 1);

	for (uint64_t line = start; line < address + size; line += model->line) {
		uint64_t place = physical - address + line;

		if (look_up(model, line, place))
			continue;
		counts->counts[miss]++;
		if (!look_up(models + L2, place, place))
			counts->counts[L2_ANY]++;
	}
}

void fetch(uint32_t index, uint64_t address, uint64_t physical, uint32_t size)
{
	uint64_t left = PAGE - address % PAGE;

	if (!look_up(models + ITLB, address, address))
		missed[index].counts[ITLB_FETCH]++;
	look_up_lines(missed + index, L1I, L1I_FETCH, address, physical, size < left ? size : (uint32_t)left);
}

void translate(uint32_t index, uint64_t address)
{
	if (!look_up(models + DTLB, address, address))
		missed[index].counts[DTLB_ANY]++;
}

void access_data(uint32_t index, uint64_t address, uint64_t physical, uint32_t size, bool is_store)
{
	look_up_lines(missed + index, L1D, is_store ? L1D_STORE : L1D_LOAD, address, physical, size);
}

void begin_misses(uint32_t instructions)
{
	for (uint32_t i = 0; i < instructions; i++)
		before[i] = missed[i];
	for (int cache = 0; cache < CACHES; cache++)
		models[cache].before = models[cache].all;
}

void end_misses(uint32_t instructions)
{
	for (uint32_t i = 0; i < instructions; i++)
		for (int miss = 0; miss < MISSES; miss++)
			region[i].counts[miss] = missed[i].counts[miss] - before[i].counts[miss];
	for (int cache = 0; cache < CACHES; cache++) {
		struct model *model = models + cache;

		model->region.hits = model->all.hits - model->before.hits;
		model->region.misses = model->all.misses - model->before.misses;
	}
}

void keep_misses(uint32_t instructions)
{
	for (uint32_t i = 0; i < instructions; i++)
		for (int miss = 0; miss < MISSES; miss++)
			kept[i].counts[miss] += region[i].counts[miss];
	for (int cache = 0; cache < CACHES; cache++) {
		struct model *model = models + cache;

		model->kept.hits += model->region.hits;
		model->kept.misses += model->region.misses;
	}
}

void forget_kept_misses(uint32_t instructions)
{
	memset(kept, 0, instructions * sizeof(*kept));
	for (int cache = 0; cache < CACHES; cache++)
		models[cache].kept = (struct lookups){0};
}

struct lookups kept_lookups(enum cache cache)
{
	return models[cache].kept;
}

const uint64_t *misses_of(uint32_t index)
{
	for (int miss = 0; miss < MISSES; miss++)
		if (kept[index].counts[miss])
			return kept[index].counts;
	return 0;
}
