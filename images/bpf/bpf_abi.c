// SPDX-License-Identifier: GPL-2.0-only
// See bpf_abi.h.
#include "bpf_abi.h"

long bpf(int command, union bpf_request *request, size_t size)
{
	return sys3(SYS_bpf, command, request, size);
}

#ifdef __i386__
void *map_memory(int fd, size_t size, size_t offset, int protection, int flags)
{
	unsigned long arguments[6] = {0, size, protection, flags, fd, offset};

	return (void *)sys1(SYS_old_mmap, arguments);
}
#else
void *map_memory(int fd, size_t size, size_t offset, int protection, int flags)
{
	register long r10 __asm__("r10") = flags;
	register long r8 __asm__("r8") = fd;
	register long r9 __asm__("r9") = offset;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(SYS_mmap), "D"(0L), "S"(size), "d"((long)protection), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return (void *)result;
}
#endif

int is_error(const void *address)
{
	return (unsigned long)address >= -4095UL;
}
