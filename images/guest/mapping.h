// SPDX-License-Identifier: GPL-2.0-only
// Where does a process execute the code of a file, and which bytes are there?
#ifndef MAPPING_H
#define MAPPING_H

#include "runtime.h"

// Returns the address at which a file's offset is mapped as code; 0 if it is not. MAPS is the text of /proc/PID/maps,
// whose line breaks become zero bytes.
unsigned long find_mapping(char *maps, const char *file, unsigned long offset);

// Prints NAME, the bytes in hex, and a new line.
void print_hex(const char *name, const unsigned char *bytes, long size);

#endif
