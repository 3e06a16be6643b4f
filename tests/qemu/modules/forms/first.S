// SPDX-License-Identifier: GPL-2.0-only
#include <linux/linkage.h>

#ifndef RET
#define RET ret
#endif
SYM_FUNC_START(first_number)
	mov $1, %eax
	RET
SYM_FUNC_END(first_number)
