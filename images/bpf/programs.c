// SPDX-License-Identifier: GPL-2.0-only
// See programs.h.
#include "programs.h"

#ifdef __i386__
// Of struct pt_regs (arch/x86/include/uapi/asm/ptrace.h): ip, ax, dx, cx, bx, si.
static const int16_t registers[EVENT_ARGUMENTS] = {48, 24, 8, 4, 0, 12};
enum { REGISTER = WORD, REGISTER_SIZE = 4 };
#else
// ip, di, si, dx, cx, ax.
static const int16_t registers[EVENT_ARGUMENTS] = {128, 112, 104, 96, 88, 80};
enum { REGISTER = DOUBLE, REGISTER_SIZE = 8 };
#endif
enum { WORD_SIZE = 8, COMMON_FIELDS = 8 };	// of a tracepoint's record: struct trace_entry

#define COPY(to, ...)						\
({								\
	const struct instruction body[] = {__VA_ARGS__};	\
	memcpy((to), body, sizeof(body));			\
	(uint32_t)(sizeof(body) / sizeof(body[0]));		\
})

// Adds one to a slot of the per-CPU array; takes R0 to R5.
static uint32_t add_one(struct instruction *to, int counts, int slot)
{
	return COPY(to,
		STORE_VALUE(WORD, R10, -4, slot),
		MOVE(R2, R10),
		ADD(R2, -4),
		MAP(R1, counts),
		CALL(BPF_FUNC_map_lookup_elem),
		SKIP_IF_ZERO(R0, 3),
		LOAD(DOUBLE, R1, R0, 0),
		ADD(R1, 1),
		STORE(DOUBLE, R0, 0, R1));
}

uint32_t write_noop(struct instruction *to)
{
	return COPY(to, SET(R0, 0), RETURN);
}

uint32_t write_count(struct instruction *to, int counts)
{
	uint32_t length = add_one(to, counts, COUNTS);

	return length + write_noop(to + length);
}

uint32_t write_count_shared(struct instruction *to, int counts)
{
	uint32_t length = COPY(to,
		STORE_VALUE(WORD, R10, -4, COUNTS),
		MOVE(R2, R10),
		ADD(R2, -4),
		MAP(R1, counts),
		CALL(BPF_FUNC_map_lookup_elem),
		SKIP_IF_ZERO(R0, 2),
		SET(R1, 1),
		ADD_ATOMIC(DOUBLE, R0, 0, R1));

	return length + write_noop(to + length);
}

// One argument of the event in R7, from the context in R6.
static uint32_t copy_argument(struct instruction *to, uint32_t number, enum context context, uint32_t words)
{
	const int16_t place = 16 + WORD_SIZE * number;

	if (context == REGISTERS)
		return COPY(to, LOAD(REGISTER, R1, R6, registers[number]), STORE(DOUBLE, R7, place, R1));
	if (number < words && context == WORDS)
		return COPY(to, LOAD(DOUBLE, R1, R6, WORD_SIZE * number), STORE(DOUBLE, R7, place, R1));
	if (number < words && context == RECORD)
		return COPY(to, LOAD(REGISTER, R1, R6, COMMON_FIELDS + REGISTER_SIZE * number),
			    STORE(DOUBLE, R7, place, R1));
	return COPY(to, STORE_VALUE(DOUBLE, R7, place, 0));
}

// What an event has beside its arguments, behind its reservation; ends where R7 is the event.
static uint32_t begin_event(struct instruction *to, int ring, int counts)
{
	uint32_t length = COPY(to,
		MOVE(R6, R1),
		MAP(R1, ring),
		SET(R2, EVENT_SIZE),
		SET(R3, 0),
		CALL(BPF_FUNC_ringbuf_reserve),
		SKIP_IF_SET(R0, 0));
	const uint32_t branch = length - 1;

	length += add_one(to + length, counts, DROPPED);
	length += write_noop(to + length);
	to[branch].offset = length - branch - 1;
	length += COPY(to + length,
		MOVE(R7, R0),
		CALL(BPF_FUNC_ktime_get_ns),
		STORE(DOUBLE, R7, 0, R0),
		CALL(BPF_FUNC_get_current_pid_tgid),
		STORE_VALUE(WORD, R7, 8, 0),
		STORE(WORD, R7, 12, R0));
	return length;
}

static uint32_t end_event(struct instruction *to)
{
	uint32_t length = COPY(to,
		MOVE(R1, R7),
		SET(R2, BPF_RB_NO_WAKEUP),
		CALL(BPF_FUNC_ringbuf_submit));

	return length + write_noop(to + length);
}

uint32_t write_record(struct instruction *to, int ring, int counts, enum context context, uint32_t words)
{
	uint32_t length = begin_event(to, ring, counts);

	for (uint32_t number = 0; number < EVENT_ARGUMENTS; number++)
		length += copy_argument(to + length, number, context, words);
	return length + end_event(to + length);
}

uint32_t write_stack(struct instruction *to, int ring, int counts, enum context context, uint32_t words, int stacks,
		     uint32_t flags)
{
	uint32_t length = begin_event(to, ring, counts);

	for (uint32_t number = 0; number < EVENT_ARGUMENTS - 1; number++)
		length += copy_argument(to + length, number, context, words);
	length += COPY(to + length,
		MOVE(R1, R6),
		MAP(R2, stacks),
		SET(R3, flags),
		CALL(BPF_FUNC_get_stackid),
		STORE(DOUBLE, R7, 16 + WORD_SIZE * (EVENT_ARGUMENTS - 1), R0));
	return length + end_event(to + length);
}

uint32_t write_witness(struct instruction *to, int hits)
{
	uint32_t length = COPY(to,
		CALL(BPF_FUNC_get_current_pid_tgid),
		SHIFT_RIGHT(R0, 32),	// the process, whichever of its threads hits
		STORE(WORD, R10, -4, R0),
		MOVE(R2, R10),
		ADD(R2, -4),
		MAP(R1, hits),
		CALL(BPF_FUNC_map_lookup_elem),
		// Not atomic, which the compiler for i386 refuses: the kernel lets no program interrupt itself.
		SKIP_IF_ZERO(R0, 4),
		LOAD(DOUBLE, R1, R0, 0),
		ADD(R1, 1),
		STORE(DOUBLE, R0, 0, R1),
		SKIP(9),
		STORE_VALUE(DOUBLE, R10, -16, 1),
		MOVE(R2, R10),
		ADD(R2, -4),
		MOVE(R3, R10),
		ADD(R3, -16),
		SET(R4, BPF_ANY),
		MAP(R1, hits),
		CALL(BPF_FUNC_map_update_elem));

	return length + write_noop(to + length);
}
