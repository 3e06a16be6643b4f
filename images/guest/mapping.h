// SPDX-License-Identifier: GPL-2.0-only
// Where a process executes what a file has, and which bytes are there?
#ifndef MAPPING_H
#define MAPPING_H

#include "runtime.h"

// The address at which what a file has at the offset is executed; 0 where nowhere. MAPS is the text of /proc/PID/maps,
// whose lines this ends.
unsigned long find_mapping(char *maps, const char *file, unsigned long offset);

// NAMEHEX and a new line.
void print_hex(const char *name, const unsigned char *bytes, long size);

#endif
