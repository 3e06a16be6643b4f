// SPDX-License-Identifier: GPL-2.0-only
// See attached.h. The kernel tells of another process's perf events and raw tracepoints (BPF_TASK_FD_QUERY). Of its
// other links it does not: they are asked themselves, by a copy of the descriptor (pidfd_getfd, since Linux 5.6).
#include "attached.h"
#include "btf.h"
#include "process_files.h"

enum { NAME_SIZE = 256, NAME_ROOM = 32 };
enum { E_FAULT = 14, UNSAID = 255, NOWHERE = 1 };
// enum bpf_task_fd_type, enum bpf_prog_type and enum bpf_link_type
enum { RAW_TRACEPOINT = 0, TRACING_PROGRAM = 26 };
enum { LINK_TRACING = 2, LINK_PERF_EVENT = 7, LINK_KPROBE_MULTI = 8, LINK_UPROBE_MULTI = 12, LINK_TRACING_MULTI = 15 };

struct attached {
	const char *link;
	uint32_t flags, attach_type, places;
};

// enum bpf_task_fd_type
static const struct attached events[] = {
	{.link = "raw"}, {.link = "tracepoint"},
	{.link = "kprobe"}, {.link = "kprobe", .flags = 1},
	{.link = "uprobe"}, {.link = "uprobe", .flags = 1},
};
static const struct attached typed = {.link = "typed", .attach_type = BPF_TRACE_RAW_TP};
static const struct attached other = {.link = "other"};

static void show(uint32_t program, const struct attached *as, const char *name, uint64_t offset)
{
	const uint64_t numbers[] = {as->attach_type, as->flags, as->places ?: 1, offset};

	print_number(1, program);
	print(1, " ");
	print(1, as->link);
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		print(1, " ");
		print_number(1, numbers[i]);
	}
	print(1, " ");
	print(1, *name ? name : "-");
	print(1, "\n");
}

static uint32_t type_of_program(uint32_t id)
{
	struct program_info info = {0};
	int program = program_by_id(id);
	union bpf_request request = {.info = {program, sizeof(info), (unsigned long)&info}};

	if (program < 0)
		return 0;
	bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info));
	sys1(SYS_close, program);
	return info.type;
}

// The kernel calls a program that knows the types of its tracepoint's arguments raw, too.
static const struct attached *event_of(uint32_t type, uint32_t program)
{
	if (type == RAW_TRACEPOINT && type_of_program(program) == TRACING_PROGRAM)
		return &typed;
	return type < sizeof(events) / sizeof(events[0]) ? &events[type] : &other;
}

static long show_event(long pid, uint32_t file)
{
	char name[NAME_SIZE] = "";
	union bpf_request request = {
		.task_file = {.pid = pid, .fd = file, .size = sizeof(name), .name = (unsigned long)name},
	};
	long error = bpf(BPF_TASK_FD_QUERY, &request, sizeof(request.task_file));

	if (error)
		return error;
	show(request.task_file.program, event_of(request.task_file.type, request.task_file.program), name,
	     request.task_file.offset);
	return 0;
}

// Its file is called bpf_link where the link was made, and bpf-link where it was opened again.
static int is_link(const char *name)
{
	return text_equal(name, "anon_inode:bpf_link") || text_equal(name, "anon_inode:bpf-link");
}

// Whether a program was loaded for links of this type. The kernel compares the types first, and then finds no memory at
// the address.
static int is_loaded_for(uint32_t id, uint32_t attach_type)
{
	union bpf_request request = {.link = {.type = attach_type}};
	int program = program_by_id(id);
	long error;

	if (program < 0)
		return 0;
	request.link.program = program;
	if (attach_type == BPF_TRACE_KPROBE_SESSION) {
		request.link.multi.count = 1;
		request.link.multi.addresses = NOWHERE;
	} else {
		request.link.places.count = 1;
		request.link.places.path = request.link.places.offsets = NOWHERE;
	}
	error = bpf(BPF_LINK_CREATE, &request, sizeof(request.link));
	sys1(SYS_close, program);
	return error == -E_FAULT;
}

// Linux 6.1 does not say which functions a link to many is at, nor whether at their returns: that has no places.
static struct attached to_many(const char *link, uint32_t flags, uint32_t places, uint32_t attach_type)
{
	return (struct attached){link, places ? flags : UNSAID, attach_type, places};
}

static void show_link(int fd)
{
	struct link_info info = {0};
	union bpf_request request = {.info = {fd, sizeof(info), (unsigned long)&info}};
	struct attached as = other;
	char name[NAME_SIZE] = "";

	// The process has the perf event of such a link, too, and that has been shown.
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)) || info.type == LINK_PERF_EVENT)
		return;
	if (info.type == LINK_TRACING) {
		as.attach_type = info.tracing.attach_type;
		as.link = "trampoline";
		name_function(info.tracing.btf_id, name, sizeof(name));
	} else if (info.type == LINK_KPROBE_MULTI) {
		as = to_many("multi", info.functions.flags, info.functions.count,
			     is_loaded_for(info.program, BPF_TRACE_KPROBE_SESSION) ? BPF_TRACE_KPROBE_SESSION :
			     BPF_TRACE_KPROBE_MULTI);
	} else if (info.type == LINK_UPROBE_MULTI) {
		as = to_many("places", info.places.flags, info.places.count,
			     is_loaded_for(info.program, BPF_TRACE_UPROBE_SESSION) ? BPF_TRACE_UPROBE_SESSION :
			     BPF_TRACE_UPROBE_MULTI);
	} else if (info.type == LINK_TRACING_MULTI) {
		as = to_many("functions", 0, info.trampolines.count, info.trampolines.attach_type);
	}
	show(info.program, &as, name, 0);
}

long show_attached(long pid)
{
	long process = open_process(pid);

	if (process < 0)
		return process;
	for (uint32_t file = 0; file < MOST_FILES; file++) {
		char name[NAME_ROOM];
		long mine;

		if (!name_of_file(pid, file, name, sizeof(name)) || !show_event(pid, file) || !is_link(name))
			continue;
		mine = copy_of_file(process, file);
		if (mine < 0)
			continue;
		show_link(mine);
		sys1(SYS_close, mine);
	}
	sys1(SYS_close, process);
	return 0;
}

static void show_program(int program)
{
	static const char digits[] = "0123456789abcdef";
	struct program_info info = {0};
	union bpf_request request = {.info = {program, sizeof(info), (unsigned long)&info}};
	char tag[2 * sizeof(info.tag) + 1] = "";

	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)))
		return;
	for (size_t i = 0; i < sizeof(info.tag); i++) {
		tag[2 * i] = digits[info.tag[i] >> 4];
		tag[2 * i + 1] = digits[info.tag[i] & 15];
	}
	info.name[sizeof(info.name) - 1] = 0;
	print_number(1, info.id);
	print(1, " ");
	print_number(1, info.type);
	print(1, " ");
	print(1, tag);
	print(1, " ");
	print(1, *info.name ? info.name : "-");
	print(1, "\n");
}

static void show_program_of(int link)
{
	struct link_info info = {0};
	union bpf_request request = {.info = {link, sizeof(info), (unsigned long)&info}};
	int program;

	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)))
		return;
	program = program_by_id(info.program);
	if (program < 0)
		return;
	show_program(program);
	sys1(SYS_close, program);
}

static void show_program_at(long pid, uint32_t file)
{
	char name[NAME_SIZE] = "";
	union bpf_request request = {
		.task_file = {.pid = pid, .fd = file, .size = sizeof(name), .name = (unsigned long)name},
	};
	int program;

	if (bpf(BPF_TASK_FD_QUERY, &request, sizeof(request.task_file)))
		return;
	program = program_by_id(request.task_file.program);
	if (program < 0)
		return;
	show_program(program);
	sys1(SYS_close, program);
}

long show_loaded(long pid)
{
	long process = open_process(pid);

	if (process < 0)
		return process;
	for (uint32_t file = 0; file < MOST_FILES; file++) {
		char name[NAME_ROOM];
		int is_program;
		long mine;

		if (!name_of_file(pid, file, name, sizeof(name)))
			continue;
		is_program = text_equal(name, "anon_inode:bpf-prog");
		if (!is_program && !is_link(name)) {
			show_program_at(pid, file);
			continue;
		}
		mine = copy_of_file(process, file);
		if (mine < 0)
			continue;
		if (is_program)
			show_program((int)mine);
		else
			show_program_of((int)mine);
		sys1(SYS_close, mine);
	}
	sys1(SYS_close, process);
	return 0;
}
