// SPDX-License-Identifier: GPL-2.0-only
#include "shared.h"

int tiny(void)
{
	return shared() + 1;
}
