// SPDX-License-Identifier: GPL-2.0-only
// Which calls led to each instruction? A shadow stack, since a plugin of interface 1 reads neither registers nor memory.
//
// It follows calls, returns, traps and system calls from block to block of code. A return whose address no frame waits
// for is a jump, as retpolines make them.
#ifndef STACKS_H
#define STACKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum ending { JUMPS, CALLS, RETURNS, TRAPS, LEAVES };

// A prefix of an instruction, other than lock.
bool is_prefix(uint8_t byte);

// What a kernel begins at an address: with landmarks, the stacks of whole programs are exact by what entered the kernel,
// for a trap is known by its entry, and each task has a stack of its own.
enum landmark { NOTHING, FUNCTION = 'f', TRAP = 't', NAMED = 'c', SWITCH = 's', DEATH = 'd', END = 'e' };

// Each line is an address in hex, a space and a letter, in the order of the addresses. False where it is malformed, or
// too long.
bool read_landmarks(const char *text);
// What begins at the address; and where the function begins that it is in, which is the address itself in other code.
enum landmark find_landmark(uint64_t address, uint64_t *function);
// Whether an instruction may be the one in __switch_to_asm() that stores or loads a task's stack pointer.
bool is_in_switch(uint64_t address);
// It accessed memory there: the last store before the first load is of the task that is left.
void see_switch(uint64_t address, bool is_store);
// As follow() below, if programs are not followed but it is known whether one ran in between.
void follow_landmark(enum ending ending, uint64_t behind, uint64_t next, enum landmark landmark, bool from_user);
// Instructions of the kernel's function at the address, and of programs before it or behind it.
void count_landmark(uint64_t address, uint64_t in_kernel, uint64_t in_user);
void forget_tasks(void);
// All stacks, too: none that was counted before can be kept.
void forget_stacks(void);

// How an instruction ends a block of code: what it does to the stack.
enum ending ending_of(const uint8_t *code, size_t size);

// Instructions of the block at `address` were executed: on the stack as it is now.
void count_on_stack(uint64_t address, uint32_t instructions);
// Execution went from a block with this ending, which is followed by `behind`, to `next`.
void follow(enum ending ending, uint64_t behind, uint64_t next);
void empty_stack(void);
// How many functions and traps have been entered and not left.
size_t stack_depth(void);

// A region's counts: begin and end it, then add it to what is kept, and get each sum with its stack; the root's frames
// come first.
void begin_stacks(void);
void end_stacks(void);
void keep_stacks(void);
void forget_kept_stacks(void);
typedef void stack_line(uint64_t count, uint64_t address, const uint64_t *frames, size_t depth);
void list_stacks(stack_line *line);
// Whether there was no room for some of them.
bool stacks_are_full(void);

#endif
