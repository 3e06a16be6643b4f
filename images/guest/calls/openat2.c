// SPDX-License-Identifier: GPL-2.0-only
// Opens /dev/null by openat2() and closes it.
#include "workload.h"
#include <linux/fcntl.h>
#include <linux/openat2.h>

static struct open_how how = {.flags = O_RDONLY};

void workload(void)
{
	sys1(SYS_close, sys4(SYS_openat2, AT_FDCWD, "/dev/null", &how, sizeof(how)));
}
