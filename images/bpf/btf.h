// SPDX-License-Identifier: GPL-2.0-only
// Which number has a function in the kernel's own type information, and how many arguments?
#ifndef BTF_H
#define BTF_H

#include "bpf_abi.h"

struct btf_function {
	uint32_t id, arguments;
};

// Returns a negative errno where the kernel has no type information, or the function is not in it: ENOENT.
long find_function(const char *name, struct btf_function *found);

#endif
