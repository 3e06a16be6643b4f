// SPDX-License-Identifier: GPL-2.0-only
// See marks.h.
#include "marks.h"
#include "host.h"
#include "region.h"

long mark_in(const uint8_t *bytes, size_t size)
{
	uint32_t words[2];

	if (size != MARK_SIZE)
		return 0;
	memcpy(words, bytes, sizeof(words));
	if (words[0] != REGION_OPCODE || (words[1] & ~0xffu) != REGION_MAGIC)
		return 0;
	return words[1] & 0xff;
}
