// SPDX-License-Identifier: GPL-2.0-only
// See process.h.
#include "process.h"
#include "failure.h"
#include "runtime.h"

void tell_process(const char *file, int pid)
{
	int fd;

	if (!file)
		return;
	fd = (int)sys3(SYS_open, file, O_WRONLY, 0);
	if (fd < 0)
		fail("cannot open ", file);
	if (pid == NOBODY)
		print(fd, "-1");
	else
		print_number(fd, (uint64_t)pid);
	sys1(SYS_close, fd);
}

void print_wait_status(int status)
{
	print(2, program_name);
	print(2, ": the program ");
	print(2, status & 0x7f ? "was ended by signal " : "ended with status ");
	print_number(2, (uint64_t)(status & 0x7f ? status & 0x7f : status >> 8 & 0xff));
	print(2, "\n");
}
