// SPDX-License-Identifier: GPL-2.0-only
// See stacks.h.
#include "stacks.h"
#include "host.h"

enum { NODES = 1 << 17, COUNTS = 1 << 18, DEPTH = 128, LANDMARKS = 1 << 18, TASKS = 256, SWITCH_SIZE = 32 };

// A function that was entered from another: one for each way that leads to it.
struct node {
	uint64_t target;
	uint32_t parent;
};

struct frame {
	uint32_t node;
	uint64_t behind;	// where it returns to; of a trap, what follows the block that it interrupted
	bool is_trap;
	enum ending interrupted; // with landmarks: what that block would have done
};

struct task {
	uint64_t id;	// where the kernel has its stack pointer while it does not run
	size_t depth;
	struct frame stack[DEPTH];
};

struct count {
	uint64_t address, total, before, in_region, kept;
	uint32_t node;
};

static struct node nodes[NODES];	// the first is the program itself
static struct count counts[COUNTS];
static uint32_t node_slots[2 * NODES], count_slots[2 * COUNTS];	// one more than the index; 0 is free
static uint32_t used_nodes = 1, used_counts;
static struct frame stack[DEPTH];
static size_t depth;
static bool full;
static struct {
	uint64_t address;
	enum landmark landmark;
} landmarks[LANDMARKS];		// by address
static size_t used_landmarks;
static struct task tasks[TASKS]; // waiting tasks; an id of 0 is free
static uint64_t switch_start, stored, next_task, pending;
static bool is_switching, is_dying, is_entering;

bool stacks_are_full(void)
{
	return full;
}

void empty_stack(void)
{
	depth = 0;
}

size_t stack_depth(void)
{
	return depth;
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

static void add_count(uint32_t node, uint64_t address, uint64_t instructions)
{
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

void count_on_stack(uint64_t address, uint32_t instructions)
{
	add_count(current_node(), address, instructions);
}

static void enter(uint64_t target, uint64_t behind, bool is_trap)
{
	if (depth == DEPTH) {
		full = true;
		return;
	}
	stack[depth] = (struct frame){child(current_node(), target), behind, is_trap, JUMPS};
	depth++;
}

// Unwinds to the frame that waits for this address, above the last trap.
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

bool read_landmarks(const char *text)
{
	for (size_t i = 0; *text; i++) {
		char *end;
		uint64_t address = strtoull(text, &end, 16);

		if (end[0] != ' ' || !end[1] || end[2] != '\n' || i == LANDMARKS ||
		    (i && address <= landmarks[i - 1].address))
			return false;
		landmarks[i].address = address;
		landmarks[i].landmark = (enum landmark)end[1];
		if (end[1] == SWITCH)
			switch_start = address;
		text = end + 3;
		used_landmarks = i + 1;
	}
	return switch_start;
}

enum landmark find_landmark(uint64_t address, uint64_t *function)
{
	size_t first = 0, behind = used_landmarks;

	while (first < behind) {
		size_t middle = (first + behind) / 2;

		if (landmarks[middle].address <= address)
			first = middle + 1;
		else
			behind = middle;
	}
	*function = address;
	if (!first || landmarks[first - 1].landmark == END)
		return NOTHING;
	*function = landmarks[first - 1].address;
	return *function == address ? landmarks[first - 1].landmark : NOTHING;
}

bool is_in_switch(uint64_t address)
{
	return switch_start && address - switch_start < SWITCH_SIZE;
}

void see_switch(uint64_t address, bool is_store)
{
	if (!is_switching)
		return;
	if (is_store) {
		stored = address;
		return;
	}
	next_task = address;
	is_switching = false;
}

void forget_tasks(void)
{
	for (size_t i = 0; i < TASKS; i++)
		tasks[i].id = 0;
	depth = 0;
	next_task = pending = 0;
	is_switching = is_dying = is_entering = false;
}

void forget_stacks(void)
{
	forget_tasks();
	for (size_t i = 0; i < 2 * NODES; i++)
		node_slots[i] = 0;
	for (size_t i = 0; i < 2 * COUNTS; i++)
		count_slots[i] = 0;
	used_nodes = 1;
	used_counts = 0;
	full = false;
}

static struct task *task_of(uint64_t id)
{
	for (size_t i = 0; i < TASKS; i++)
		if (tasks[i].id == id)
			return tasks + i;
	return NULL;
}

static void switch_task(void)
{
	struct task *from = is_dying ? NULL : task_of(0), *to = task_of(next_task);

	if (!is_dying && !from) {
		full = true;
		return;
	}
	if (from) {
		from->id = stored;
		from->depth = depth;
		memcpy(from->stack, stack, depth * sizeof(*stack));
	}
	depth = to ? to->depth : 0;
	if (to) {
		memcpy(stack, to->stack, depth * sizeof(*stack));
		to->id = 0;
	}
	next_task = 0;
	is_dying = false;
}

// Names what entered the kernel, which is known now.
static void settle(void)
{
	if (pending && depth)
		add_count(stack[0].node, nodes[stack[0].node].target, pending);
	pending = 0;
	is_entering = false;
}

void count_landmark(uint64_t address, uint64_t in_kernel, uint64_t in_user)
{
	if (is_entering)
		pending += in_kernel;
	else if (in_kernel)
		add_count(current_node(), address, in_kernel);
	if (in_user)
		add_count(0, 0, in_user);
}

// A system call's function precedes what entered the kernel for it.
static void name_call(uint64_t call)
{
	uint32_t node = child(0, call);

	for (size_t i = 0; i < depth; i++) {
		node = child(node, nodes[stack[i].node].target);
		stack[i].node = node;
	}
	settle();
}

// What was interrupted goes on. Whether there is a trap, whose frame is then at the depth.
static bool leave_landmark(void)
{
	while (depth > 0 && !stack[depth - 1].is_trap)
		depth--;
	if (!depth)
		return false;
	depth--;
	return true;
}

void follow_landmark(enum ending ending, uint64_t behind, uint64_t next, enum landmark landmark, bool from_user)
{
	if (from_user || landmark == TRAP || ending == LEAVES || next_task)
		settle();
	if (next_task)
		switch_task();
	if (from_user) {
		depth = 0;
		enter(next, 0, true);
		is_entering = landmark != TRAP;
	} else if (landmark == TRAP) {
		if (ending == LEAVES)
			leave_landmark();	// the next trap comes before what was interrupted goes on
		enter(next, behind, true);
		if (depth && (ending == CALLS || ending == RETURNS))
			stack[depth - 1].interrupted = ending;
	} else if (ending == LEAVES && next != behind) {
		// Where a block had just called or returned when it was interrupted, it does that now.
		if (leave_landmark())
			follow(stack[depth].interrupted, stack[depth].behind, next);
	} else if (ending != TRAPS && ending != LEAVES) {
		follow(ending, behind, next);
	}
	if (landmark == NAMED && is_entering)
		name_call(next);
	is_switching |= landmark == SWITCH;
	is_dying |= landmark == DEATH;
}

void begin_stacks(void)
{
	if (!switch_start)
		empty_stack();
	settle();
	for (uint32_t i = 0; i < used_counts; i++)
		counts[i].before = counts[i].total;
}

void end_stacks(void)
{
	settle();
	for (uint32_t i = 0; i < used_counts; i++) {
		counts[i].in_region = counts[i].total - counts[i].before;
		counts[i].before = 0;
	}
}

void keep_stacks(void)
{
	for (uint32_t i = 0; i < used_counts; i++)
		counts[i].kept += counts[i].in_region;
}

void forget_kept_stacks(void)
{
	for (uint32_t i = 0; i < used_counts; i++)
		counts[i].kept = 0;
}

void list_stacks(stack_line *line)
{
	uint64_t frames[DEPTH + 1];

	for (uint32_t i = 0; i < used_counts; i++) {
		size_t size = 0;

		if (!counts[i].kept)
			continue;
		for (uint32_t node = counts[i].node; node; node = nodes[node].parent)
			frames[DEPTH + 1 - ++size] = nodes[node].target;
		line(counts[i].kept, counts[i].address, frames + DEPTH + 1 - size, size);
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
