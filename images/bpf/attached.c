// SPDX-License-Identifier: GPL-2.0-only
// See attached.h. The kernel tells of another process's perf events and raw tracepoints (BPF_TASK_FD_QUERY). Of its
// other links it does not: they are asked themselves, by a copy of the descriptor (pidfd_getfd, since Linux 5.6).
#include "attached.h"
#include "btf.h"

enum { SYS_pidfd_open = 434, SYS_pidfd_getfd = 438 };	// of both architectures
#ifdef __i386__
enum { SYS_readlink = 85 };
#else
enum { SYS_readlink = 89 };
#endif
enum { MOST_PROCESSES = 1000000, MOST_FILES = 1024, NAME_SIZE = 256, E_SRCH = 3 };
enum { LINK_TRACING = 2, LINK_PERF_EVENT = 7 };	// enum bpf_link_type

// enum bpf_task_fd_type
static const char *const kinds[] = {"raw-tracepoint", "tracepoint", "kprobe", "kretprobe", "uprobe", "uretprobe"};

static void show(uint32_t program, const char *kind, const char *name, uint64_t offset)
{
	print_number(1, program);
	print(1, " ");
	print(1, kind);
	print(1, " ");
	print(1, *name ? name : "-");
	print(1, " ");
	print_number(1, offset);
	print(1, "\n");
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
	show(request.task_file.program, request.task_file.type < sizeof(kinds) / sizeof(kinds[0]) ?
	     kinds[request.task_file.type] : "other", name, request.task_file.offset);
	return 0;
}

// Writes a number below a million; returns its end, where a 0 is.
static char *write_number(char *to, uint32_t number)
{
	for (uint32_t unit = 100000; unit; unit /= 10)
		if (number >= unit || unit == 1)
			*to++ = '0' + number / unit % 10;
	*to = 0;
	return to;
}

static int is_link(long pid, uint32_t file)
{
	static const char expected[] = "anon_inode:bpf_link";
	char path[32] = "/proc/", found[sizeof(expected)] = "";
	char *end = write_number(path + text_length(path), pid);

	memcpy(end, "/fd/", 4);
	write_number(end + 4, file);
	return sys3(SYS_readlink, path, found, sizeof(found)) == sizeof(expected) - 1 && text_equal(found, expected);
}

static void show_link(int fd)
{
	struct link_info info = {0};
	union bpf_request request = {.info = {fd, sizeof(info), (unsigned long)&info}};
	char name[NAME_SIZE] = "";

	// The process has the perf event of such a link, too, and that has been shown.
	if (bpf(BPF_OBJ_GET_INFO_BY_FD, &request, sizeof(request.info)) || info.type == LINK_PERF_EVENT)
		return;
	if (info.type == LINK_TRACING)
		name_function(info.tracing.btf_id, name, sizeof(name));
	show(info.program, info.type != LINK_TRACING ? "other" : info.tracing.attach_type == BPF_TRACE_FENTRY ? "fentry" :
	     info.tracing.attach_type == BPF_TRACE_FEXIT ? "fexit" : "other", name, 0);
}

long show_attached(long pid)
{
	long process = pid < MOST_PROCESSES ? sys2(SYS_pidfd_open, pid, 0) : -E_SRCH;

	if (process < 0)
		return process;
	for (uint32_t file = 0; file < MOST_FILES; file++) {
		long mine;

		if (!show_event(pid, file) || !is_link(pid, file))
			continue;
		mine = sys3(SYS_pidfd_getfd, process, file, 0);
		if (mine < 0)
			continue;
		show_link(mine);
		sys1(SYS_close, mine);
	}
	sys1(SYS_close, process);
	return 0;
}
