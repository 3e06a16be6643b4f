// SPDX-License-Identifier: GPL-2.0-only
// Which of the marks of images/guest/region.h is an instruction?
#ifndef MARKS_H
#define MARKS_H

#include <stddef.h>
#include <stdint.h>

enum { MARK_SIZE = 8 };

// The mark's number by the instruction's bytes; 0 for any other instruction.
long mark_in(const uint8_t *bytes, size_t size);

#endif
