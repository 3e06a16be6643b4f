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

// How an instruction ends a block of code: what it does to the stack.
enum ending ending_of(const uint8_t *code, size_t size);

// Instructions of the block at `address` were executed: on the stack as it is now.
void count_on_stack(uint64_t address, uint32_t instructions);
// Execution went from a block with this ending, which is followed by `behind`, to `next`.
void follow(enum ending ending, uint64_t behind, uint64_t next);
void empty_stack(void);

// A region's counts: begin and end it, then get each with its stack; the root's frames come first.
void begin_stacks(void);
void end_stacks(void);
typedef void stack_line(uint64_t count, uint64_t address, const uint64_t *frames, size_t depth);
void list_stacks(stack_line *line);
// There was not room for all.
bool stacks_are_full(void);

#endif
