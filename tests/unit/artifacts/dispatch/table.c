/* SPDX-License-Identifier: GPL-2.0-only */
/* A dispatch as it was before Linux 6.9: a table of pointers. */
long __ia32_sys_zero(const void *regs)
{
	return regs != 0;
}

long __ia32_sys_one(const void *regs)
{
	return regs != 0 ? 2 : 3;
}

long (*const sys_call_table[])(const void *regs) = { __ia32_sys_zero, __ia32_sys_one };
long (*const ia32_sys_call_table[])(const void *regs) = { __ia32_sys_one, __ia32_sys_zero };
const int behind_the_tables = 1;

void _start(void)
{
}
