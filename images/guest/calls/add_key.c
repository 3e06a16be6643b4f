// SPDX-License-Identifier: GPL-2.0-only
// Gives a key of the process a new value.
#include "workload.h"
#include <linux/keyctl.h>

void workload(void)
{
	sys5(SYS_add_key, "user", "lab", "value", 5, KEY_SPEC_PROCESS_KEYRING);
}
