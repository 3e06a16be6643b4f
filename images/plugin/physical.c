// SPDX-License-Identifier: GPL-2.0-only
// See physical.h.
#include "physical.h"

enum { PAGE = 4096 };

static uint64_t memory;		// the host's address of the guest's physical address 0
static bool is_known;

bool find_data(qemu_plugin_meminfo_t info, uint64_t address, uint64_t *physical)
{
	const struct qemu_plugin_hwaddr *found = qemu_plugin_get_hwaddr(info, address);

	if (!found || qemu_plugin_hwaddr_is_io(found))
		return false;
	*physical = qemu_plugin_hwaddr_phys_addr(found);
	return true;
}

void learn_code(const void *host, uint64_t physical)
{
	memory = ((uint64_t)host & -(uint64_t)PAGE) - (physical & -(uint64_t)PAGE);
	is_known = true;
}

bool is_code_known(void)
{
	return is_known;
}

uint64_t find_code(const void *host)
{
	return (uint64_t)host - memory;
}
