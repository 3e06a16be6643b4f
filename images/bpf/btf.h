// SPDX-License-Identifier: GPL-2.0-only
// Which number has a function in the kernel's own type information, how many arguments, and which name has a number?
#ifndef BTF_H
#define BTF_H

#include "bpf_abi.h"

struct btf_function {
	uint32_t id, arguments;
};

// Returns a negative errno where the kernel has no type information, or the function is not in it: ENOENT.
long find_function(const char *name, struct btf_function *found);

// The same for a tracepoint: the type of the functions that it calls (typedef btf_trace_NAME of include/trace/bpf_probe.h).
long find_tracepoint(const char *name, struct btf_function *found);

// Writes the name of a function; an error like those of find_function, EINVAL for the number of something else.
long name_function(uint32_t id, char *to, size_t room);

#endif
