// SPDX-License-Identifier: GPL-2.0-only
// See stacks.h.
#include "stacks.h"

enum { NODES = 1 << 15, COUNTS = 1 << 16, DEPTH = 128 };

// A function that was entered from another: one for each way that leads to it.
struct node {
	uint64_t target;
	uint32_t parent;
};

struct frame {
	uint32_t node;
	uint64_t behind;	// where it returns to
	bool is_trap;
};

struct count {
	uint64_t address, total, before, in_region;
	uint32_t node;
};

static struct node nodes[NODES];	// the first is the program itself
static struct count counts[COUNTS];
static uint32_t node_slots[2 * NODES], count_slots[2 * COUNTS];	// one more than the index; 0 is free
static uint32_t used_nodes = 1, used_counts;
static struct frame stack[DEPTH];
static size_t depth;
static bool full;

bool stacks_are_full(void)
{
	return full;
}

void empty_stack(void)
{
	depth = 0;
}

static uint32_t hash(uint64_t address, uint32_t node)
{
	uint64_t mixed = (address ^ (uint64_t)node << 40) * 0x9e3779b97f4a7c15u;

	return (uint32_t)(mixed >> 32);
}

static uint32_t current_node(void)
{
	return depth ? stack[depth - 1].node : 0;
}

static uint32_t child(uint32_t parent, uint64_t target)
{
	for (uint32_t at = hash(target, parent) % (2 * NODES);; at = (at + 1) % (2 * NODES)) {
		if (node_slots[at] == 0) {
			if (used_nodes == NODES) {
				full = true;
				return 0;
			}
			nodes[used_nodes] = (struct node){target, parent};
			node_slots[at] = ++used_nodes;
			return used_nodes - 1;
		}
		if (nodes[node_slots[at] - 1].target == target && nodes[node_slots[at] - 1].parent == parent)
			return node_slots[at] - 1;
	}
}

void count_on_stack(uint64_t address, uint32_t instructions)
{
	uint32_t node = current_node();

	for (uint32_t at = hash(address, node) % (2 * COUNTS);; at = (at + 1) % (2 * COUNTS)) {
		if (count_slots[at] == 0) {
			if (used_counts == COUNTS) {
				full = true;
				return;
			}
			counts[used_counts] = (struct count){.address = address, .node = node};
			count_slots[at] = ++used_counts;
		}
		if (counts[count_slots[at] - 1].address == address && counts[count_slots[at] - 1].node == node) {
			counts[count_slots[at] - 1].total += instructions;
			return;
		}
	}
}

static void enter(uint64_t target, uint64_t behind, bool is_trap)
{
	if (depth == DEPTH) {
		full = true;
		return;
	}
	stack[depth] = (struct frame){child(current_node(), target), behind, is_trap};
	depth++;
}

// To the frame that waits for this address, above the last trap.
static void leave(uint64_t to)
{
	for (size_t at = depth; at > 0 && !stack[at - 1].is_trap; at--) {
		if (stack[at - 1].behind == to) {
			depth = at - 1;
			return;
		}
	}
}

// 32-bit kernels begin at 3 GiB, or lower where a user has configured so: then only a stack may keep frames too long.
static bool is_user(uint64_t address)
{
	return address < 0xc0000000u || (address > 0xffffffffu && !(address >> 63));
}

// Behind the last trap; in user space, behind all of them, also where one went another way than it came.
static void leave_trap(uint64_t to)
{
	for (size_t at = depth; at > 0; at--) {
		if (!stack[at - 1].is_trap)
			continue;
		depth = at - 1;
		if (!is_user(to))
			return;
	}
}

void follow(enum ending ending, uint64_t behind, uint64_t next)
{
	if (next == behind)
		return;
	switch (ending) {
	case CALLS:
		enter(next, behind, false);
		break;
	case RETURNS:
		leave(next);
		break;
	case LEAVES:
		leave_trap(next);
		break;
	case TRAPS:
		enter(next, behind, true);
		break;
	case JUMPS:
		break;
	}
}

void begin_stacks(void)
{
	empty_stack();
	for (uint32_t i = 0; i < used_counts; i++)
		counts[i].before = counts[i].total;
}

void end_stacks(void)
{
	for (uint32_t i = 0; i < used_counts; i++) {
		counts[i].in_region = counts[i].total - counts[i].before;
		counts[i].before = 0;
	}
}

void list_stacks(stack_line *line)
{
	uint64_t frames[DEPTH];

	for (uint32_t i = 0; i < used_counts; i++) {
		size_t size = 0;

		if (!counts[i].in_region)
			continue;
		for (uint32_t node = counts[i].node; node; node = nodes[node].parent)
			frames[DEPTH - ++size] = nodes[node].target;
		line(counts[i].in_region, counts[i].address, frames + DEPTH - size, size);
	}
}

bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67: case 0xf2: case 0xf3:
		return true;
	}
	return byte >= 0x40 && byte <= 0x4f; // REX; alone it is inc or dec, which ends no block
}

enum ending ending_of(const uint8_t *code, size_t size)
{
	while (size > 1 && is_prefix(*code)) {
		code++;
		size--;
	}
	switch (code[0]) {
	case 0xe8:
		return CALLS;
	case 0xff:
		return size > 1 && ((code[1] >> 3 & 7) == 2 || (code[1] >> 3 & 7) == 3) ? CALLS : JUMPS;
	case 0xc2: case 0xc3:
		return RETURNS;
	case 0xcf:
		return LEAVES;
	case 0xcc: case 0xcd:
		return TRAPS;
	// A repeated string instruction is a block that goes on at its own beginning.
	case 0xa4: case 0xa5: case 0xa6: case 0xa7: case 0xaa: case 0xab: case 0xac: case 0xad: case 0xae: case 0xaf:
	case 0x6c: case 0x6d: case 0x6e: case 0x6f:
	case 0xe9: case 0xea: case 0xeb: case 0xe0: case 0xe1: case 0xe2: case 0xe3:
		return JUMPS;
	case 0x0f:
		if (size > 1 && (code[1] == 0x05 || code[1] == 0x34))
			return TRAPS;
		if (size > 1 && (code[1] == 0x07 || code[1] == 0x35))
			return LEAVES;
		return size > 1 && (code[1] & 0xf0) == 0x80 ? JUMPS : TRAPS;
	}
	// Behind anything else that is no branch, execution goes on elsewhere for an exception only: a single step, a fault.
	return (code[0] & 0xf0) == 0x70 ? JUMPS : TRAPS;
}
