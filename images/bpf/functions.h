// SPDX-License-Identifier: GPL-2.0-only
// The functions of the running kernel that the function tracer can hook, with their addresses and types.
#ifndef FUNCTIONS_H
#define FUNCTIONS_H

#include "bpf_abi.h"

struct function {
	uint64_t key;		// its place in the order
	unsigned long address;
	const char *name;
	uint32_t id;		// in the kernel's own type information, 0 for none that a trampoline takes
};

// What a mechanism requires of a function.
enum demand { ANY = 0, NOT_IN_BLACKLIST = 1, TYPED = 2, RETURNS = 4, UNIQUE = 8, ON_NO_STACK = 16 };

struct functions {
	struct function *all;
	uint32_t count;
	unsigned long text_start, text_end;	// _stext and _etext
};

// Reads the kernel's own functions, those of modules left out, in an order that the names and the seed decide; the
// target is the first. Where the kernel does not list addresses (before Linux 6.5), and for what is found by name,
// functions that share their name are left out. Returns a negative errno, -ENOENT where the target is not among them.
long read_functions(struct functions *found, int demands, const char *target, uint32_t seed);

#endif
