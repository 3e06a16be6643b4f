// SPDX-License-Identifier: GPL-2.0-only
// What one run of a program costs, from before its fork to after its end.
//
//   runbench [-P FILE] [-m KEPT] RUNS PROGRAM [ARGUMENT...]
//       With FILE, the program's process writes its number there before it becomes the program, and -1 is written when
//       it has ended: for counting the hits of a probe.
//       QEMU's plugin counts the instructions of the last KEPT runs (region.h).
//
// The program's standard output is thrown away. Output, one line each:
//   run I tsc=T ns=N pid=P
// Exit status: 0, 2 for bad usage, 1 where the program did not end with status 0.
#include "clock.h"
#include "failure.h"
#include "process.h"
#include "region_clock.h"
#include "runtime.h"

enum { RUNS_MAX = 1000 };

const char program_name[] = "runbench";

struct figure {
	uint64_t tsc, clock;
	long pid;
};

static struct figure figures[RUNS_MAX];

static void become(const char *file, char **argv, char **environment) __attribute__((noreturn));
static void become(const char *file, char **argv, char **environment)
{
	int nowhere = (int)sys3(SYS_open, "/dev/null", O_WRONLY, 0);

	sys2(SYS_dup2, nowhere, 1);
	if (file)
		tell_process(file, (int)sys0(SYS_getpid));
	sys3(SYS_execve, argv[0], argv, environment);
	print(2, "runbench: cannot execute ");
	print(2, argv[0]);
	print(2, "\n");
	exit_program(CANNOT_EXECUTE);
}

int program(int argc, char **argv, char **environment)
{
	const char *file = NULL;
	long runs, kept = 0;

	argv++;
	argc--;
	for (; argc >= 2 && argv[0][0] == '-'; argv += 2, argc -= 2) {
		if (text_equal(argv[0], "-P"))
			file = argv[1];
		else if (text_equal(argv[0], "-m"))
			kept = parse_number(argv[1]);
		else
			fail("unknown option ", argv[0]);
	}
	runs = argc >= 2 ? parse_number(argv[0]) : -1;
	if (runs < 1 || runs > RUNS_MAX || kept < 0 || kept > runs)
		fail("expected [-P FILE] [-m KEPT] RUNS PROGRAM [ARGUMENT...]", "");
	if (kept)
		arm_counting();
	for (long i = 0; i < runs; i++) {
		uint64_t clock = read_clock(), tsc = begin_region();
		long pid = sys0(SYS_fork);
		int status = 0;

		if (pid < 0)
			fail("cannot fork", "");
		if (!pid)
			become(file, argv + 1, environment);
		while (sys4(SYS_wait4, pid, &status, 0, 0) == -E_INTR)
			;
		tsc = end_region() - tsc;
		clock = read_clock() - clock;
		tell_process(file, NOBODY);
		if (status) {
			print_wait_status(status);
			return 1;
		}
		if (runs - i <= kept)
			__asm__ volatile(REGION_MARK(REGION_KEEP));
		figures[i] = (struct figure){tsc, clock, pid};
	}
	if (kept)
		__asm__ volatile(REGION_MARK(REGION_DISARM));
	// What is printed wakes the process that reads it, which must not run while a program does.
	for (long i = 0; i < runs; i++) {
		print(1, "run ");
		print_number(1, (uint64_t)i);
		print(1, " tsc=");
		print_number(1, figures[i].tsc);
		print(1, " ns=");
		print_number(1, figures[i].clock);
		print(1, " pid=");
		print_number(1, (uint64_t)figures[i].pid);
		print(1, "\n");
	}
	return 0;
}
