// SPDX-License-Identifier: GPL-2.0-only
// See classes.h.
#include "classes.h"
#include "stacks.h"

const char *const class_names[CLASSES] = {
	"int3", "other traps", "iret", "system calls", "sysret", "calls", "returns", "popf", "pushf", "rdtsc", "locked",
};

static enum class class_of_two(uint8_t second, uint8_t third)
{
	switch (second) {
	case 0x05: case 0x34:
		return SYSTEM_CALL;
	case 0x07: case 0x35:
		return SYSRET;
	case 0x31:
		return RDTSC;
	case 0x01:
		return third == 0xf9 ? RDTSC : PLAIN; // rdtscp
	}
	return PLAIN;
}

enum class class_of(const uint8_t *code, size_t size)
{
	while (size > 1 && (is_prefix(*code) || *code == 0xf0)) {
		if (*code == 0xf0)
			return LOCKED;
		code++;
		size--;
	}
	switch (code[0]) {
	case 0xcc:
		return INT3;
	case 0xcd: case 0xce: case 0xf1:
		return OTHER_TRAP;
	case 0xcf:
		return IRET;
	case 0xe8: case 0x9a:
		return CALL;
	case 0xff:
		return size > 1 && ((code[1] >> 3 & 7) == 2 || (code[1] >> 3 & 7) == 3) ? CALL : PLAIN;
	case 0xc2: case 0xc3: case 0xca: case 0xcb:
		return RETURN;
	case 0x9d:
		return POPF;
	case 0x9c:
		return PUSHF;
	case 0x86: case 0x87: // an exchange with memory locks it
		return size > 1 && code[1] < 0xc0 ? LOCKED : PLAIN;
	case 0x0f:
		return size > 1 ? class_of_two(code[1], size > 2 ? code[2] : 0) : PLAIN;
	}
	return PLAIN;
}
