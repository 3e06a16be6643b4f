// SPDX-License-Identifier: GPL-2.0-only
// A page of a file, mapped.
#ifndef MAPPED_FILE_H
#define MAPPED_FILE_H

#include "runtime.h"
#include <linux/mman.h>

enum { PAGE = 4096 };

static inline volatile char *mapped_file(int flags)
{
	static const char bytes[PAGE];
	long fd = sys3(SYS_open, "/tmp/lab-fault-file", O_RDWR | O_CREAT, 0600);

	write_all((int)fd, bytes, sizeof(bytes));
	return map_memory((int)fd, PAGE, 0, PROT_READ | PROT_WRITE, flags);
}

#endif
