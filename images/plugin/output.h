// SPDX-License-Identifier: GPL-2.0-only
// The file that a plugin writes, through a buffer. It is bounded, and a line "error REASON" ends it.
#ifndef OUTPUT_H
#define OUTPUT_H

#include <stdbool.h>
#include <stddef.h>

// Makes the file, or empties it. Returns false if that fails.
bool open_output(const char *path);
// Takes the file's size anew: the lab cuts off what it has read.
void measure_output(void);
// Whether so many bytes more are within the limit of 64 MiB.
bool has_output_room(size_t size);

void put(const char *text, size_t size);
void flush_output(void);

// Writes the reason once. The caller writes nothing after it.
void report_error(const char *reason);
// Whether an error was reported, or writing has failed.
bool output_has_failed(void);
// Writes the reason again, if there is one: the lab may have cut it off with what it has read.
void repeat_error(void);

#endif
