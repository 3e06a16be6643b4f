// SPDX-License-Identifier: GPL-2.0-only
// A tool that needs no library: a program at each system call's entry, and on request what a tool should not do.
//
//   own_tool [MANNER]
//   MANNER: twice   attaches a second program, at the exits
//           idle    attaches nothing and waits
//           ends    ends at once, with words
//           asks    asks for a terminal
//           deaf    does not end on Ctrl-C
//           pins    leaves its program pinned
//           leaves  leaves a process behind that it has started
//           prints  writes without end
//           again   attaches other programs again and again
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static long call(int command, union bpf_attr *request)
{
	long answer = syscall(SYS_bpf, command, request, sizeof(*request));

	if (answer < 0) {
		fprintf(stderr, "own_tool: bpf(%d): %s\n", command, strerror(errno));
		_exit(1);
	}
	return answer;
}

static int attach(const char *tracepoint, const char *name)
{
	static const struct bpf_insn body[] = {
		{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0},
		{.code = BPF_JMP | BPF_EXIT},
	};
	union bpf_attr load = {
		.prog_type = BPF_PROG_TYPE_RAW_TRACEPOINT, .insn_cnt = 2,
		.insns = (unsigned long)body, .license = (unsigned long)"GPL",
	};
	union bpf_attr open = {0};
	int program;

	strncpy(load.prog_name, name, sizeof(load.prog_name) - 1);
	program = (int)call(BPF_PROG_LOAD, &load);
	open.raw_tracepoint.name = (unsigned long)tracepoint;
	open.raw_tracepoint.prog_fd = (unsigned int)program;
	call(BPF_RAW_TRACEPOINT_OPEN, &open);
	return program;
}

int main(int argc, char **argv)
{
	const char *manner = argc > 1 ? argv[1] : "";
	int program;

	if (!strcmp(manner, "ends")) {
		fprintf(stderr, "own_tool: no such probe: nowhere\n");
		return 1;
	}
	if (!strcmp(manner, "asks") && open("/dev/tty", O_RDWR) < 0) {
		fprintf(stderr, "own_tool: cannot open the terminal: %s\n", strerror(errno));
		return 1;
	}
	if (!strcmp(manner, "deaf"))
		signal(SIGINT, SIG_IGN);
	if (!strcmp(manner, "leaves") && !fork()) {
		signal(SIGINT, SIG_IGN);
		for (;;)
			pause();
	}
	if (!strcmp(manner, "idle"))
		for (;;)
			pause();
	program = attach("sys_enter", "at_entry");
	if (!strcmp(manner, "twice"))
		attach("sys_exit", "at_exit");
	if (!strcmp(manner, "pins")) {
		union bpf_attr pin = {.pathname = (unsigned long)"/sys/fs/bpf/left_behind", .bpf_fd = (unsigned int)program};

		call(BPF_OBJ_PIN, &pin);
	}
	while (!strcmp(manner, "prints"))
		puts("a line, and another one, without end");
	for (int i = 0; !strcmp(manner, "again"); i++) {
		attach("sys_enter", "one_more");
		usleep(300000);
	}
	for (;;)
		pause();
}
