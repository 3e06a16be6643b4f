// SPDX-License-Identifier: GPL-2.0-only
// The classes of instructions that take a processor far longer than others, by their bytes.
//
// A test compares them with the names that a disassembler gives (executed_classes() of orchestrator/profile).
#ifndef CLASSES_H
#define CLASSES_H

#include <stddef.h>
#include <stdint.h>

enum class {
	INT3, OTHER_TRAP, IRET, SYSTEM_CALL, SYSRET, CALL, RETURN, POPF, PUSHF, RDTSC, LOCKED, CLASSES, PLAIN = CLASSES
};

// The names of the classes, in their order.
extern const char *const class_names[CLASSES];

enum class class_of(const uint8_t *code, size_t size);

#endif
