// SPDX-License-Identifier: GPL-2.0-only
// A whole program: asks for its parent's number a thousand times, and exits with the status that its argument gives.
#include "runtime.h"

int program(int argc, char **argv, char **environment)
{
	(void)environment;
	for (int i = 0; i < 1000; i++)
		sys0(SYS_getppid);
	return argc > 1 ? (int)parse_number(argv[1]) : 0;
}
