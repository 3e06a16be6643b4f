// SPDX-License-Identifier: GPL-2.0-only
// A look at each block of code that QEMU translates, in whatever version of its interface.
#ifndef TRANSLATIONS_H
#define TRANSLATIONS_H

#include "qemu_plugin.h"

typedef void translation_look(struct qemu_plugin_tb *tb);

// Have `look` called for each block that is translated from now on; id and info are the plugin's.
void look_at_translations(qemu_plugin_id_t id, const qemu_info_t *info, translation_look *look);

// Copy the first bytes of an instruction.
void read_bytes(const struct qemu_plugin_insn *insn, void *bytes, size_t size);

// Have QEMU forget all blocks, so that it translates each again, with a look.
void translate_anew(void);

#endif
