// SPDX-License-Identifier: GPL-2.0-only
// Which bytes of the kernel's text, and of a part of this program's, have changed?
#ifndef KERNEL_TEXT_H
#define KERNEL_TEXT_H

#include "bpf_abi.h"

// Both parts in a row: as they were, and as they were last read.
extern char *text_before, *text_now;

// Reads what is between the two addresses in the kernel's memory, and so much of the program's; twice, so that reading it
// again takes no memory any more. Returns a negative errno, -ENOENT where /proc/kcore lacks the text.
long watch_text(unsigned long start, unsigned long end, const void *own, size_t own_size);

// Makes the present bytes the ones to compare with. Returns a negative errno.
long remember_text(void);

// Reads the text. Returns how many bytes have changed, or a negative errno.
long changed_bytes(void);

// Returns the offset in an ELF file of the bytes at an address, or a negative errno.
long offset_in(const char *path, unsigned long address, size_t size);

#endif
