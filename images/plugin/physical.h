// SPDX-License-Identifier: GPL-2.0-only
// Where in the guest's physical memory is what an instruction accesses, and where is the instruction itself?
//
// QEMU tells the physical address of data. Of code it tells where the host has it, and that differs from the physical
// address by a constant: the guest's memory is one block of the host's. An instruction that accesses its own page shows
// the constant; a program that is measured has one (REGION_SELF of region.h).
#ifndef PHYSICAL_H
#define PHYSICAL_H

#include "qemu_plugin.h"

// False for an access to a device, and for what QEMU does not know.
bool find_data(qemu_plugin_meminfo_t info, uint64_t address, uint64_t *physical);
// Code that the host has at `host`, and data at `physical`, are on one page.
void learn_code(const void *host, uint64_t physical);
bool is_code_known(void);
uint64_t find_code(const void *host);

#endif
