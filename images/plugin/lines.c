// SPDX-License-Identifier: GPL-2.0-only
// See lines.h.
#include "lines.h"

enum { LINES = 1 << 16, SLOTS = 2 * LINES };

struct line {
	uint64_t number;
	uint32_t accesses[CPUS];	// in the window
	uint16_t valid, writers;	// CPUs by bit: whose caches have it as it is, and those that wrote in the window
	bool is_written;		// by any of them, at any time
};

static struct line lines[LINES];
static uint32_t slots[SLOTS], used;	// one more than the index of the line; 0 is free

void forget_lines(void)
{
	for (uint32_t i = 0; i < SLOTS; i++)
		slots[i] = 0;
	used = 0;
}

// NULL where there is no room.
static struct line *line_of(uint64_t number)
{
	for (uint32_t at = (uint32_t)(number * 0x9e3779b97f4a7c15u >> 32) % SLOTS;; at = (at + 1) % SLOTS) {
		if (slots[at] == 0) {
			if (used == LINES)
				return 0;
			lines[used] = (struct line){.number = number};
			slots[at] = ++used;
		}
		if (lines[slots[at] - 1].number == number)
			return lines + slots[at] - 1;
	}
}

static bool access_line(struct line *line, unsigned int cpu, bool is_store, bool in_window)
{
	const uint16_t own = (uint16_t)(1u << cpu);
	// The only CPU that may have written it, and no longer have it, is another.
	const bool moves = line->is_written && !(line->valid & own);

	line->valid = is_store ? own : line->valid | own;
	line->is_written |= is_store;
	line->accesses[cpu] += in_window;
	if (in_window && is_store)
		line->writers |= own;
	return moves;
}

uint32_t access_lines(unsigned int cpu, uint64_t physical, uint32_t size, bool is_store, bool in_window, bool *is_room)
{
	uint32_t moved = 0;

	for (uint64_t number = physical / LINE_SIZE; number <= (physical + size - 1) / LINE_SIZE; number++) {
		struct line *line = line_of(number);

		*is_room &= line != 0;
		moved += line && access_line(line, cpu, is_store, in_window);
	}
	return moved;
}

static bool is_contended(const struct line *line)
{
	int users = 0;

	for (int cpu = 0; cpu < CPUS; cpu++)
		users += line->accesses[cpu] != 0;
	return users > 1 && line->writers;
}

uint64_t contended_accesses(unsigned int cpu)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < used; i++)
		if (is_contended(lines + i))
			sum += lines[i].accesses[cpu];
	return sum;
}

uint32_t contended_lines(void)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < used; i++)
		sum += is_contended(lines + i);
	return sum;
}
