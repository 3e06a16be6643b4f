// SPDX-License-Identifier: GPL-2.0-only
// Asks for its capabilities and sets the same ones.
#include "workload.h"
#include <linux/capability.h>

static struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};

void workload(void)
{
	struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];

	sys2(SYS_capget, &header, sets);
	sys2(SYS_capset, &header, sets);
}
