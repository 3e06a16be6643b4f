// SPDX-License-Identifier: GPL-2.0-only
// Advice on a whole file's pages of the page cache: posix_fadvise().
#ifndef FILE_ADVICE_H
#define FILE_ADVICE_H

#include "runtime.h"

enum { ADVICE_RANDOM = 1, ADVICE_DONTNEED = 4 };

static inline void advise(long fd, int advice)
{
#ifdef __i386__
	sys5(SYS_fadvise64, fd, 0, 0, 0, advice);
#else
	sys4(SYS_fadvise64, fd, 0, 0, advice);
#endif
}

#endif
