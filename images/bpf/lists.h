// SPDX-License-Identifier: GPL-2.0-only
// Reading the kernel's lists, which are text files.
#ifndef LISTS_H
#define LISTS_H

#include "bpf_abi.h"

// Zeroed memory of this process, or a negative errno as an address.
void *room_for(size_t size);

// The content of a file in memory of its own, with a zero behind it; a negative errno as an address, -E2BIG for more
// than 64 MiB.
char *read_list(const char *path);

// The next word of a text, which a zero then ends, and what was behind it.
char *next_word(char **at, char *end);

// The hexadecimal number at the beginning of a text, 0 for none.
unsigned long next_hexadecimal(char **at);

// How many lines of a file begin with neither a tab nor the end, or a negative errno.
long count_lines(const char *path);

// The sum of the decimal numbers in one column of a file, counted from 0, or a negative errno.
long sum_column(const char *path, int column);

// The decimal number behind a name with its colon, which begins a line of a file, or a negative errno, -ENOENT for none.
long number_behind(const char *path, const char *name);

#endif
