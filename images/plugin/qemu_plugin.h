// SPDX-License-Identifier: GPL-2.0-only
// What the plugin uses of QEMU's TCG plugin interface: no package has its header (include/qemu/qemu-plugin.h).
//
// Versions of the interface: 1 in QEMU 7.2; 2 (9.0) has counters for each virtual CPU ("scoreboards") in place of
// inline counters at an address; 3 (9.1) copies an instruction's bytes where 1 and 2 return a pointer to them; 7 (11.1,
// which takes no older one) gives each callback its data, and two of them no plugin's number.
#ifndef QEMU_PLUGIN_H
#define QEMU_PLUGIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))
#define NEWER __attribute__((weak))	// not in all versions: NULL there

typedef uint64_t qemu_plugin_id_t;
typedef uint32_t qemu_plugin_meminfo_t;

struct qemu_plugin_tb;
struct qemu_plugin_insn;
struct qemu_plugin_scoreboard;
struct qemu_plugin_hwaddr;
struct qemu_plugin_register;

// GLib's GArray and GByteArray; QEMU has loaded it.
struct glib_array {
	char *data;
	unsigned int length;
};

unsigned int g_array_get_element_size(struct glib_array *array);
char *g_array_free(struct glib_array *array, int with_elements);
struct glib_array *g_byte_array_new(void);
struct glib_array *g_byte_array_set_size(struct glib_array *array, unsigned int length);

typedef struct {
	struct qemu_plugin_register *handle;
	const char *name;
} qemu_plugin_reg_descriptor;	// its beginning, which is the same in all versions

typedef struct {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
} qemu_plugin_u64;

typedef struct {
	const char *target_name;
	struct {
		int min, cur;
	} version;
} qemu_info_t;	// its beginning, which is the same in all versions

enum qemu_plugin_cb_flags { QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_CB_R_REGS };
enum qemu_plugin_mem_rw { QEMU_PLUGIN_MEM_R = 1, QEMU_PLUGIN_MEM_W, QEMU_PLUGIN_MEM_RW };
enum qemu_plugin_op { QEMU_PLUGIN_INLINE_ADD_U64 };

typedef void qemu_plugin_simple_cb(qemu_plugin_id_t id);
typedef void qemu_plugin_tb_cb(qemu_plugin_id_t id, struct qemu_plugin_tb *tb);
typedef void qemu_plugin_data_cb(void *data);
typedef void qemu_plugin_tb_data_cb(struct qemu_plugin_tb *tb, void *data);
typedef void qemu_plugin_exec_cb(unsigned int vcpu, void *data);
typedef void qemu_plugin_mem_cb(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *data);

// Two functions of QEMU's, as they are up to version 6, and since version 7.
void qemu_plugin_reset_1(qemu_plugin_id_t id, qemu_plugin_simple_cb *done) __asm__("qemu_plugin_reset");
void qemu_plugin_reset_7(qemu_plugin_id_t id, qemu_plugin_data_cb *done, void *data) __asm__("qemu_plugin_reset");
void qemu_plugin_register_vcpu_tb_trans_cb_1(qemu_plugin_id_t id, qemu_plugin_tb_cb *translated)
	__asm__("qemu_plugin_register_vcpu_tb_trans_cb");
void qemu_plugin_register_vcpu_tb_trans_cb_7(qemu_plugin_id_t id, qemu_plugin_tb_data_cb *translated, void *data)
	__asm__("qemu_plugin_register_vcpu_tb_trans_cb");
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *tb, qemu_plugin_exec_cb *executed,
					  enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_insn_exec_cb(struct qemu_plugin_insn *insn, qemu_plugin_exec_cb *executed,
					    enum qemu_plugin_cb_flags flags, void *data);
void qemu_plugin_register_vcpu_mem_cb(struct qemu_plugin_insn *insn, qemu_plugin_mem_cb *accessed,
				      enum qemu_plugin_cb_flags flags, enum qemu_plugin_mem_rw rw, void *data);
bool qemu_plugin_mem_is_store(qemu_plugin_meminfo_t info);
unsigned int qemu_plugin_mem_size_shift(qemu_plugin_meminfo_t info);
struct qemu_plugin_hwaddr *qemu_plugin_get_hwaddr(qemu_plugin_meminfo_t info, uint64_t address);
bool qemu_plugin_hwaddr_is_io(const struct qemu_plugin_hwaddr *data);
uint64_t qemu_plugin_hwaddr_phys_addr(const struct qemu_plugin_hwaddr *data);

size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *tb, size_t index);
uint64_t qemu_plugin_tb_vaddr(const struct qemu_plugin_tb *tb);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *insn);
size_t qemu_plugin_insn_size(const struct qemu_plugin_insn *insn);
void *qemu_plugin_insn_haddr(const struct qemu_plugin_insn *insn);	// the host's address; NULL where it is no memory
// One function of QEMU's, as it is in versions 1 and 2, and since version 3.
const void *qemu_plugin_insn_data_1(const struct qemu_plugin_insn *insn) __asm__("qemu_plugin_insn_data");
size_t qemu_plugin_insn_data_3(const struct qemu_plugin_insn *insn, void *to,
			       size_t size) __asm__("qemu_plugin_insn_data");

// Version 1.
NEWER void qemu_plugin_register_vcpu_insn_exec_inline(struct qemu_plugin_insn *insn, enum qemu_plugin_op op,
						      void *counter, uint64_t number);
// Version 2 and newer.
NEWER struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
NEWER void *qemu_plugin_scoreboard_find(struct qemu_plugin_scoreboard *score, unsigned int vcpu);
NEWER int qemu_plugin_num_vcpus(void);
NEWER struct glib_array *qemu_plugin_get_registers(void);	// of descriptors
NEWER int qemu_plugin_read_register(struct qemu_plugin_register *handle, struct glib_array *appended);
NEWER void qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(struct qemu_plugin_insn *insn, enum qemu_plugin_op op,
							       qemu_plugin_u64 counter, uint64_t number);

// What "-d nochain" sets, in any version: where QEMU loads modules, as Debian's does, it shows them this variable, and a
// plugin too. While the bit is set, QEMU executes only translations that were made while it was set, and while it is not,
// only others (curr_cflags() and tb_lookup() of accel/tcg/cpu-exec.c, 7.2 to 11.0). It keeps both.
NEWER extern int qemu_loglevel;
enum { QEMU_NOCHAIN = 1 << 13 };

// Version 6 and newer: not used, it tells them.
NEWER bool qemu_plugin_set_pc(uint64_t address);

#endif
