// SPDX-License-Identifier: GPL-2.0-only
// Writes a page of a file to a pipe by sendfile(), and the page to /dev/null by splice().
#include "workload.h"

enum { PAGE = 4096 };

static long from, to;
static int ends[2];

void workload_setup(void)
{
	static const char bytes[PAGE];

	from = sys3(SYS_open, "/tmp/lab-sendfile", O_RDWR | O_CREAT, 0600);
	write_all((int)from, bytes, sizeof(bytes));
	to = sys2(SYS_open, "/dev/null", O_WRONLY);
	sys2(SYS_pipe2, ends, 0);
}

void workload(void)
{
	long at = 0;

	sys4(SYS_sendfile, ends[1], from, &at, PAGE);
	sys6(SYS_splice, ends[0], 0, to, 0, PAGE, 0);
}
