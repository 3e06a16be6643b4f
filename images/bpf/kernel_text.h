// SPDX-License-Identifier: GPL-2.0-only
// Which bytes of the kernel's text, and of a piece of this program's, are not as they were?
#ifndef KERNEL_TEXT_H
#define KERNEL_TEXT_H

#include "bpf_abi.h"

// Both pieces one behind the other, as they were and as they were read last.
extern char *text_before, *text_now;

// Reads what is between the two addresses in the kernel's memory, and so much of the program's; twice, so that reading it
// again takes no memory any more. Returns a negative errno, -ENOENT where /proc/kcore lacks the text.
long watch_text(unsigned long start, unsigned long end, const void *own, size_t own_size);

// What is there now is how it was. Returns a negative errno.
long remember_text(void);

// Reads the text: how many bytes are not as they were, or a negative errno.
long changed_bytes(void);

// Where so many bytes at an address are in an ELF file, or a negative errno.
long offset_in(const char *path, unsigned long address, size_t size);

#endif
