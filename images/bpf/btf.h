// SPDX-License-Identifier: GPL-2.0-only
// The kernel's type information: a function's number and arguments by its name, and a name by its number.
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

// All types of the kernel, by number.
struct btf_types {
	const void *header;
	const void *const *all;
	uint32_t count;
};

// Returns a negative errno.
long list_types(struct btf_types *types);
// NULL if the number is not a function's.
const char *function_name(const struct btf_types *types, uint32_t id);
// Whether BPF's trampolines take a function with these types: as btf_distill_func_proto() of kernel/bpf/btf.c.
int takes_trampoline(const struct btf_types *types, uint32_t id, uint32_t most, uint32_t largest, uint32_t result);

#endif
