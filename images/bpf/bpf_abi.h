// SPDX-License-Identifier: GPL-2.0-only
// What of the kernel's interface for BPF programs and perf events is used here (include/uapi/linux/bpf.h, perf_event.h
// and btf.h of Linux 6.1 to 7.3): the host need not have the kernel's headers.
#ifndef BPF_ABI_H
#define BPF_ABI_H

#include "runtime.h"

enum { E_PERM = 1, RLIMIT_MEMLOCK = 8 };

enum {
	BPF_MAP_CREATE = 0, BPF_MAP_LOOKUP_ELEM = 1, BPF_MAP_UPDATE_ELEM = 2, BPF_MAP_DELETE_ELEM = 3,
	BPF_MAP_GET_NEXT_KEY = 4, BPF_PROG_LOAD = 5, BPF_OBJ_PIN = 6, BPF_OBJ_GET = 7, BPF_PROG_GET_FD_BY_ID = 13,
	BPF_MAP_GET_FD_BY_ID = 14, BPF_OBJ_GET_INFO_BY_FD = 15, BPF_RAW_TRACEPOINT_OPEN = 17, BPF_TASK_FD_QUERY = 20,
	BPF_MAP_LOOKUP_AND_DELETE_ELEM = 21, BPF_LINK_CREATE = 28,
};

enum {
	BPF_MAP_TYPE_HASH = 1, BPF_MAP_TYPE_ARRAY = 2, BPF_MAP_TYPE_PROG_ARRAY = 3, BPF_MAP_TYPE_PERF_EVENT_ARRAY = 4,
	BPF_MAP_TYPE_PERCPU_HASH = 5, BPF_MAP_TYPE_PERCPU_ARRAY = 6, BPF_MAP_TYPE_STACK_TRACE = 7,
	BPF_MAP_TYPE_LRU_HASH = 9, BPF_MAP_TYPE_LRU_PERCPU_HASH = 10, BPF_MAP_TYPE_LPM_TRIE = 11,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12, BPF_MAP_TYPE_HASH_OF_MAPS = 13, BPF_MAP_TYPE_QUEUE = 22, BPF_MAP_TYPE_STACK = 23,
	BPF_MAP_TYPE_RINGBUF = 27, BPF_MAP_TYPE_USER_RINGBUF = 31,
};

enum {
	BPF_F_USER_STACK = 1 << 8, BPF_F_REUSE_STACKID = 1 << 10,
	BPF_TRACE_RAW_TP = 23, BPF_PERF_EVENT = 41, BPF_TRACE_KPROBE_MULTI = 42, BPF_TRACE_UPROBE_MULTI = 48,
	BPF_TRACE_KPROBE_SESSION = 56, BPF_TRACE_UPROBE_SESSION = 57,
	BPF_RB_NO_WAKEUP = 1, BPF_ANY = 0,
};

enum {
	BPF_FUNC_map_lookup_elem = 1, BPF_FUNC_map_update_elem = 2, BPF_FUNC_ktime_get_ns = 5,
	BPF_FUNC_get_current_pid_tgid = 14, BPF_FUNC_get_stackid = 27, BPF_FUNC_ringbuf_reserve = 131, BPF_FUNC_ringbuf_submit = 132,
};

enum { R0, R1, R2, R3, R4, R5, R6, R7, R8, R9, R10 };

struct instruction {
	uint8_t code;
	uint8_t to : 4, from : 4;
	int16_t offset;
	int32_t value;
};

#define SET(r, v)		{0xb7, (r), 0, 0, (v)}
#define MOVE(r, s)		{0xbf, (r), (s), 0, 0}
#define ADD(r, v)		{0x07, (r), 0, 0, (v)}
#define SHIFT_RIGHT(r, bits)	{0x77, (r), 0, 0, (bits)}
#define LOAD(size, r, s, at)	{0x61 | (size), (r), (s), (at), 0}
#define STORE(size, r, at, s)	{0x63 | (size), (r), (s), (at), 0}
#define ADD_ATOMIC(size, r, at, s) {0xc3 | (size), (r), (s), (at), 0}
#define STORE_VALUE(size, r, at, v) {0x62 | (size), (r), 0, (at), (v)}
#define CALL(function)		{0x85, 0, 0, 0, (function)}
#define SKIP_IF_SET(r, count)	{0x55, (r), 0, (count), 0}
#define SKIP_IF_ZERO(r, count)	{0x15, (r), 0, (count), 0}
#define SKIP(count)		{0x05, 0, 0, (count), 0}
#define RETURN			{0x95, 0, 0, 0, 0}
// Takes two instructions.
#define MAP(r, fd)		{0x18, (r), 1, 0, (fd)}, {0, 0, 0, 0, 0}
enum { WORD = 0x00, DOUBLE = 0x18 };

// As the kernel has it on 32 bits, too.
typedef uint64_t aligned_u64 __attribute__((aligned(8)));

union bpf_request {
	struct {
		uint32_t type, key_size, value_size, entries, flags;
	} map;
	struct {
		uint32_t fd;
		aligned_u64 key, value, flags;
	} element;
	struct {
		uint32_t type, count;
		aligned_u64 instructions, license;
		uint32_t log_level, log_size;
		aligned_u64 log;
		uint32_t kernel_version, flags;
		char name[16];
		uint32_t ifindex, attach_type, btf, info_size;
		aligned_u64 info;
		uint32_t info_count, line_size;
		aligned_u64 line;
		uint32_t line_count, btf_id, attach_to;
	} program;
	struct {
		aligned_u64 path;
		uint32_t fd, flags;
	} object;
	struct {
		uint32_t fd, size;
		aligned_u64 to;
	} info;
	struct {
		uint32_t id, next, flags;
	} number;
	struct {
		aligned_u64 name;
		uint32_t program;
	} raw;
	struct {
		uint32_t pid, fd, flags, size;
		aligned_u64 name;
		uint32_t program, type;
		aligned_u64 offset, address;
	} task_file;
	struct {
		uint32_t program, target, type, flags;
		union {
			struct {
				uint32_t flags, count;
				aligned_u64 symbols, addresses, cookies;
			} multi;
			struct {
				aligned_u64 ids, cookies;
				uint32_t count;
			} functions;
			struct {
				aligned_u64 path, offsets, semaphores, cookies;
				uint32_t count, flags, pid, path_fd;
			} places;
		};
	} link;
	char room[160];
};

struct program_info {
	uint32_t type, id;
	uint8_t tag[8];
	uint32_t jited_size, translated_size;
	aligned_u64 jited, translated, load_time;
	uint32_t created_by, map_count;
	aligned_u64 maps;
	char name[16];
	uint32_t ifindex, gpl;
	aligned_u64 device, inode;
	uint32_t symbols, function_sizes;
	aligned_u64 symbol_addresses, function_size_values;
	uint32_t btf, function_info_size;
	aligned_u64 function_info;
	uint32_t function_infos, line_infos;
	aligned_u64 lines, jited_lines;
	uint32_t jited_line_infos, line_info_size, jited_line_info_size, tags;
	aligned_u64 program_tags, run_ns, runs, recursion_misses;
	uint32_t verified, attach_btf_object, attach_btf_id;
};

struct map_info {
	uint32_t type, id, key_size, value_size, entries, flags;
	char name[16];
};

struct link_info {
	uint32_t type, id, program, padding;
	union {
		struct {
			uint32_t attach_type, btf_object, btf_id;
		} tracing;
		struct {
			aligned_u64 addresses;
			uint32_t count, flags;
		} functions;
		struct {
			aligned_u64 path, offsets, semaphores, cookies;
			uint32_t path_size, count, flags, pid;
		} places;
		struct {
			uint32_t attach_type, count;
		} trampolines;
		char room[48];
	};
};

struct event_request {
	uint32_t type, size;
	uint64_t config, period, sample_type, read_format, flags;
	uint32_t wakeup, breakpoint;
	uint64_t config1, config2;
	uint64_t rest[5];
};
enum { PERF_TYPE_SOFTWARE = 1, PERF_TYPE_TRACEPOINT = 2, PERF_FLAG_FD_CLOEXEC = 8 };
enum { PERF_COUNT_SW_BPF_OUTPUT = 10, PERF_SAMPLE_RAW = 1 << 10 };

long bpf(int command, union bpf_request *request, size_t size);
// A descriptor of a program by the kernel's number, or a negative errno.
int program_by_id(uint32_t id);

#endif
