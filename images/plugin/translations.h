// SPDX-License-Identifier: GPL-2.0-only
// A look at each block of code that QEMU translates, in whatever version of its interface.
#ifndef TRANSLATIONS_H
#define TRANSLATIONS_H

#include "qemu_plugin.h"

typedef void translation_look(struct qemu_plugin_tb *tb);

// Have `look` called for each block that is translated from now on; id is the plugin's.
void look_at_translations(qemu_plugin_id_t id, translation_look *look);

// Have QEMU forget all blocks, so that it translates each again, with a look.
void translate_anew(void);

#endif
