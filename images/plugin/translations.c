// SPDX-License-Identifier: GPL-2.0-only
// See translations.h.
#include "translations.h"
#include "host.h"

EXPORTED int qemu_plugin_version = 1;

static qemu_plugin_id_t self;
static translation_look *look_at;
static bool copies_data;

// QEMU compares the version when it has loaded the file and before it calls any of it.
static __attribute__((constructor)) void choose_version(void)
{
	if (qemu_plugin_scoreboard_new)
		qemu_plugin_version = qemu_plugin_set_pc ? 7 : 2;
}

static void translated_1(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
	(void)id;
	look_at(tb);
}

static void translated_7(struct qemu_plugin_tb *tb, void *data)
{
	(void)data;
	look_at(tb);
}

static void begin_1(qemu_plugin_id_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb_1(id, translated_1);
}

static void begin_7(void *data)
{
	qemu_plugin_register_vcpu_tb_trans_cb_7(self, translated_7, data);
}

void look_at_translations(qemu_plugin_id_t id, const qemu_info_t *info, translation_look *look)
{
	copies_data = info->version.cur >= 3;
	self = id;
	look_at = look;
	if (qemu_plugin_version >= 7)
		begin_7(NULL);
	else
		begin_1(id);
}

void read_bytes(const struct qemu_plugin_insn *insn, void *bytes, size_t size)
{
	if (copies_data)
		qemu_plugin_insn_data_3(insn, bytes, size);
	else
		memcpy(bytes, qemu_plugin_insn_data_1(insn), size);
}

void translate_anew(void)
{
	if (qemu_plugin_version >= 7)
		qemu_plugin_reset_7(self, begin_7, NULL);
	else
		qemu_plugin_reset_1(self, begin_1);
}
