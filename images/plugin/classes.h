// SPDX-License-Identifier: GPL-2.0-only
// The classes of instructions that take a processor far longer than others, by their bytes.
//
// orchestrator/catalog/instruction_classes.yaml has the same classes by name; a test compares them.
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
