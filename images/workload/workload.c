// SPDX-License-Identifier: GPL-2.0-only
// Times a function of the user's own; options and output as in bench.c. With -o CALLS it tells instead what the system
// calls of the function return, as in watched.h.
#include "bench.h"
#include "failure.h"
#include "watched.h"
#include "workload.h"
#include "workload_loop.h"

const char program_name[] = "workload";

__attribute__((weak)) void workload_setup(void)
{
}

static void check(long result)
{
	(void)result;
}

static int take_option(const char *option, const char *value)
{
	(void)option;
	(void)value;
	return 0;
}

static void print_nothing(void)
{
}

int program(int argc, char **argv, char **environment)
{
	struct bench bench = {
		.entry = "function",
		.loop = call_again_and_again,
		.check = check,
		.take_option = take_option,
		.prepare = workload_setup,
		.print_called = print_nothing,
	};

	(void)environment;
	if (argc == 3 && text_equal(argv[1], "-o")) {
		hold_output();
		return watch_calls(parse_number(argv[2]), bench.prepare, bench.loop);
	}
	return run_bench(&bench, argc, argv);
}
