// SPDX-License-Identifier: GPL-2.0-only
// Commands to the kernel, written as text to its files; the program ends if one fails.
#ifndef COMMANDS_H
#define COMMANDS_H

#include "bpf_abi.h"

// Prints what failed, with its object and the negative errno, and ends the program.
void fail(const char *what, const char *about, long error) __attribute__((noreturn));

// Returns the result; ends the program if it is a negative errno.
long checked(long result, const char *what, const char *about);

// Each appends to a text, and returns its new end.
char *put(char *to, const char *text);
char *put_number(char *to, uint64_t value, uint32_t base);

// Returns a negative errno. flags are those of open(), as O_APPEND.
long write_to(const char *path, const char *text, size_t size, int flags);

#endif
