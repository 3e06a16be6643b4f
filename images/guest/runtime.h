// SPDX-License-Identifier: GPL-2.0-only
// What the guest's programs need instead of a C library: system calls, strings, numbers as text.
// Freestanding, so that a 64-bit host builds 32-bit programs without a 32-bit C library.
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __i386__
enum {
	SYS_read = 3, SYS_write = 4, SYS_open = 5, SYS_close = 6, SYS_execve = 11, SYS_lseek = 19,
	SYS_mount = 21, SYS_kill = 37, SYS_mkdir = 39, SYS_fork = 2, SYS_setpgid = 57, SYS_symlink = 83,
	SYS_fchmod = 94, SYS_reboot = 88, SYS_gettimeofday = 78, SYS_wait4 = 114, SYS_sched_yield = 158,
	SYS_poll = 168, SYS_nanosleep = 162, SYS_rt_sigprocmask = 175, SYS_chdir = 12, SYS_dup2 = 63,
	SYS_getdents64 = 220, SYS_exit_group = 252, SYS_signalfd4 = 327, SYS_pipe2 = 331,
	SYS_finit_module = 350, SYS_clock_gettime64 = 403, SYS_getrusage = 77, SYS_unlink = 10,
	SYS_getpid = 20, SYS_ioctl = 54, SYS_chroot = 61, SYS_ptrace = 26, SYS_old_mmap = 90,
};
#else
enum {
	SYS_read = 0, SYS_write = 1, SYS_open = 2, SYS_close = 3, SYS_poll = 7, SYS_lseek = 8,
	SYS_rt_sigprocmask = 14, SYS_sched_yield = 24, SYS_dup2 = 33, SYS_nanosleep = 35, SYS_fork = 57,
	SYS_execve = 59, SYS_wait4 = 61, SYS_kill = 62, SYS_chdir = 80, SYS_mkdir = 83, SYS_symlink = 88,
	SYS_fchmod = 91, SYS_gettimeofday = 96, SYS_getrusage = 98, SYS_setpgid = 109, SYS_mount = 165,
	SYS_reboot = 169, SYS_getdents64 = 217, SYS_exit_group = 231, SYS_clock_gettime64 = 228,
	SYS_signalfd4 = 289, SYS_pipe2 = 293, SYS_finit_module = 313, SYS_unlink = 87,
	SYS_getpid = 39, SYS_ioctl = 16, SYS_chroot = 161, SYS_ptrace = 101, SYS_mmap = 9,
};
#endif

enum { O_RDONLY = 0, O_WRONLY = 1, O_RDWR = 2, O_CREAT = 0100, O_TRUNC = 01000, O_NONBLOCK = 04000,
       O_CLOEXEC = 02000000 };
enum { PROT_READ = 1, PROT_WRITE = 2, MAP_SHARED = 1, MAP_PRIVATE = 2, MAP_ANONYMOUS = 0x20 };
enum { E_NOENT = 2, E_INTR = 4, E_AGAIN = 11, E_EXIST = 17 };

// Every call returns what the kernel returned: a negative errno on failure.
long syscall5(long number, long a, long b, long c, long d, long e);
#define sys0(n) syscall5(n, 0, 0, 0, 0, 0)
#define sys1(n, a) syscall5(n, (long)(a), 0, 0, 0, 0)
#define sys2(n, a, b) syscall5(n, (long)(a), (long)(b), 0, 0, 0)
#define sys3(n, a, b, c) syscall5(n, (long)(a), (long)(b), (long)(c), 0, 0)
#define sys4(n, a, b, c, d) syscall5(n, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define sys5(n, a, b, c, d, e) syscall5(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))

// Memory, or a negative errno as an address.
void *map_memory(int fd, size_t size, size_t offset, int protection, int flags);
int is_error(const void *address);

void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
void exit_program(int status) __attribute__((noreturn));
size_t text_length(const char *text);
int text_equal(const char *a, const char *b);
// Writes all of it, or returns the negative errno of the failing write.
long write_all(int fd, const void *data, size_t size);
// As much of a file as there is room for: its size, or a negative errno.
long file_content(const char *path, char *to, size_t room);
void print(int fd, const char *text);
void print_number(int fd, uint64_t value);
// From here on what is printed to 1 is written at the end, or when so much of it is held: as few system calls as can be.
enum { HELD_BYTES = 16384 };
void hold_output(void);
// A decimal number of the whole text; -1 where it is none or does not fit.
long parse_number(const char *text);
// value / divisor without the compiler's 64-bit division helper, which 32-bit programs would need libgcc for.
uint64_t divide(uint64_t value, uint32_t divisor, uint32_t *remainder);

// What each program defines; argv and the environment end with NULL, auxv follows the environment.
int program(int argc, char **argv, char **environment);

#endif
