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

// All types of the kernel, by their numbers.
struct btf_types {
	const void *header;
	const void *const *all;
	uint32_t count;
};

// Returns a negative errno.
long list_types(struct btf_types *types);
// NULL for the number of something else than a function.
const char *function_name(const struct btf_types *types, uint32_t id);
// Whether BPF's trampolines take a function with these types: as btf_distill_func_proto() of kernel/bpf/btf.c.
int takes_trampoline(const struct btf_types *types, uint32_t id, uint32_t most, uint32_t largest, uint32_t result);

#endif
