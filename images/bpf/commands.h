// SPDX-License-Identifier: GPL-2.0-only
// Commands to the kernel, which are texts written to its files, and what becomes of this program where one fails.
#ifndef COMMANDS_H
#define COMMANDS_H

#include "bpf_abi.h"

// Says what failed, about what, with a negative errno, and ends the program.
void fail(const char *what, const char *about, long error) __attribute__((noreturn));

// The result, unless that is a negative errno, with which the program fails.
long checked(long result, const char *what, const char *about);

// Each puts more at the end of a text, and returns its new end.
char *put(char *to, const char *text);
char *put_number(char *to, uint64_t value, uint32_t base);

// Returns a negative errno. flags are those of open(), as O_APPEND.
long write_to(const char *path, const char *text, size_t size, int flags);

#endif
