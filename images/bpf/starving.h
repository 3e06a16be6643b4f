// SPDX-License-Identifier: GPL-2.0-only
// Work with hardly any memory left.
#ifndef STARVING_H
#define STARVING_H

#include "bpf_abi.h"

// Works in a process of its own, the first that the kernel kills, with all memory taken but half a MiB; returns what the
// work does, and what signal ended it. What it holds must end with its process.
long starve(long (*work)(uint32_t), uint32_t count, int *signal);

#endif
