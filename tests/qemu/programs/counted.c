// SPDX-License-Identifier: GPL-2.0-only
// A program whose system calls are known: five of getppid, one of write, and its end.
#include "runtime.h"

int program(int argc, char **argv, char **environment)
{
	(void)argc;
	(void)argv;
	(void)environment;
	for (int i = 0; i < 5; i++)
		sys0(SYS_getppid);
	print(1, "done\n");
	return 0;
}
