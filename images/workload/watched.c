// SPDX-License-Identifier: GPL-2.0-only
// See watched.h.
#include "watched.h"
#include "bench.h"
#include "failure.h"
#include "results.h"

enum { TRACEME = 0, PEEKDATA = 2, CONT = 7, SYSCALL = 24, SETOPTIONS = 0x4200, GET_SYSCALL_INFO = 0x420e };
enum { TRACE_SYSGOOD = 1, EXIT_KILL = 1 << 20, SYSCALL_STOP = 0x85, STOPPED = 0x7f };
enum { AT_ENTRY = 1, AT_EXIT = 2 };	// PTRACE_SYSCALL_INFO_ENTRY and _EXIT
enum { KILL_SIGNAL = 9, STOP_SIGNAL = 19 };
enum { KINDS = 16, MOST_SEEN = 20000 };
#define NO_CALL (~(uint64_t)0)

// struct ptrace_syscall_info of linux/ptrace.h, since Linux 5.3. Its members lie alike with 32 and 64 bits.
struct info {
	uint8_t op, reserved[3];
	uint32_t arch;
	uint64_t ip, sp;
	union {
		uint64_t number;	// at an entry
		int64_t value;		// at an exit: negative errors, too
	};
	uint64_t arguments[6];
};

static struct {
	uint64_t number;
	struct results results;
} seen[KINDS];
static int kinds;	// KINDS + 1 where there are more
static volatile long completed;	// calls; the tracer reads that of the process

static void note(uint64_t number, long value)
{
	int at = 0;

	while (at < kinds && at < KINDS && seen[at].number != number)
		at++;
	if (at == kinds)
		kinds++;
	if (at == KINDS)
		return;
	seen[at].number = number;
	note_result(&seen[at].results, value);
}

static void be_watched(long calls, void (*prepare)(void), long (*loop)(long calls))
{
	sys4(SYS_ptrace, TRACEME, 0, 0, 0);
	prepare();
	sys2(SYS_kill, sys0(SYS_getpid), STOP_SIGNAL);
	for (; completed < calls; completed++)
		loop(1);
	for (;;)
		sys1(SYS_exit_group, 0);
}

// Waits until the process stops. Returns the stopping signal; -1 less the fatal signal if it has ended.
static int wait_for_stop(long pid)
{
	int status = 0;

	while (sys4(SYS_wait4, pid, &status, 0, 0) == -E_INTR)
		;
	return (status & 0xff) == STOPPED ? status >> 8 & 0xff : -1 - (status & 0x7f);
}

// Returns the signal that ended the process, or 0.
static int watch(long pid)
{
	uint64_t number = NO_CALL;
	int signal = 0, left = MOST_SEEN;

	sys4(SYS_ptrace, SETOPTIONS, pid, 0, TRACE_SYSGOOD | EXIT_KILL);
	while (left-- && sys4(SYS_ptrace, SYSCALL, pid, 0, signal) >= 0) {
		struct info info = {0};

		signal = wait_for_stop(pid);
		if (signal < 0)
			return -1 - signal;
		sys4(SYS_ptrace, PEEKDATA, pid, &completed, &completed);
		if (signal != SYSCALL_STOP)
			continue;
		signal = 0;
		if (sys4(SYS_ptrace, GET_SYSCALL_INFO, pid, sizeof(info), &info) < 0)
			fail("the kernel does not tell what system calls return", "");
		if (info.op == AT_EXIT && number != NO_CALL)
			note(number, (long)info.value);
		number = info.op == AT_ENTRY ? info.number : NO_CALL;
	}
	sys2(SYS_kill, pid, KILL_SIGNAL);
	while (wait_for_stop(pid) >= 0)
		;
	return 0;
}

int watch_calls(long calls, void (*prepare)(void), long (*loop)(long calls))
{
	long pid = sys0(SYS_fork);
	int signal;

	if (pid == 0)
		be_watched(calls, prepare, loop);
	if (pid < 0)
		fail("no process to watch", "");
	while ((signal = wait_for_stop(pid)) != STOP_SIGNAL) {
		if (signal < 0)
			fail("workload_setup() ended the program", "");
		sys4(SYS_ptrace, CONT, pid, 0, signal);
	}
	signal = watch(pid);
	print_field("watched bits=", 8 * sizeof(long));
	print_field(" calls=", (uint64_t)completed);
	print_field(" kinds=", (uint64_t)kinds);
	print_field(" signal=", (uint64_t)signal);
	print(1, "\n");
	for (int i = 0; i < kinds && i < KINDS; i++) {
		print_field("call ", seen[i].number);
		print(1, " ");
		print_results("watched", &seen[i].results);
	}
	return 0;
}
