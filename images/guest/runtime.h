// SPDX-License-Identifier: GPL-2.0-only
// The guest programs' replacement of a C library: system calls, strings, numbers as text.
// Freestanding, so that a 64-bit host builds 32-bit programs without a 32-bit C library.
#ifndef RUNTIME_H
#define RUNTIME_H

#include <stddef.h>
#include <stdint.h>

#include "system_calls.h"

#ifndef SYS_clock_gettime64	// times have 64 bits
#define SYS_clock_gettime64 SYS_clock_gettime
#endif

// The constants of the kernel's <linux/fcntl.h> and <linux/mman.h>, which may be included as well, before or after this.
#ifndef O_RDONLY
#define O_RDONLY	00000000
#define O_WRONLY	00000001
#define O_RDWR		00000002
#define O_CREAT		00000100
#define O_TRUNC		00001000
#define O_NONBLOCK	00004000
#define O_CLOEXEC	02000000
#endif
#ifndef PROT_READ
#define PROT_READ	0x1
#define PROT_WRITE	0x2
#endif
#ifndef MAP_SHARED
#define MAP_SHARED	0x01
#define MAP_PRIVATE	0x02
#endif
#ifndef MAP_ANONYMOUS
#define MAP_ANONYMOUS	0x20
#endif
enum { E_NOENT = 2, E_INTR = 4, E_AGAIN = 11, E_EXIST = 17 };

// Every call returns what the kernel returned: a negative errno on failure.
long syscall5(long number, long a, long b, long c, long d, long e);
#define sys0(n) syscall5(n, 0, 0, 0, 0, 0)
#define sys1(n, a) syscall5(n, (long)(a), 0, 0, 0, 0)
#define sys2(n, a, b) syscall5(n, (long)(a), (long)(b), 0, 0, 0)
#define sys3(n, a, b, c) syscall5(n, (long)(a), (long)(b), (long)(c), 0, 0)
#define sys4(n, a, b, c, d) syscall5(n, (long)(a), (long)(b), (long)(c), (long)(d), 0)
#define sys5(n, a, b, c, d, e) syscall5(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e))
/**
 * sys6() - make a system call
 * @n: its number, by name: %SYS_sendto
 * @a: the first argument, a number or a pointer
 * @b: the second
 * @c: the third
 * @d: the fourth
 * @e: the fifth
 * @f: the sixth
 *
 * sys0() to sys5() take so many arguments. On i386 they enter the kernel by int $0x80, on x86_64 by syscall.
 *
 * Return: what the kernel returns, a negative errno on failure: -2 is -ENOENT.
 */
#define sys6(n, a, b, c, d, e, f) syscall6(n, (long)(a), (long)(b), (long)(c), (long)(d), (long)(e), (long)(f))

// Inlined into the programs that need it: the code of the others stays at the same addresses.
static inline long syscall6(long number, long a, long b, long c, long d, long e, long f)
{
	long result;

#ifdef __i386__
	__asm__ volatile("pushl %[f]; pushl %%ebp; movl 4(%%esp), %%ebp; int $0x80; popl %%ebp; addl $4, %%esp"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e), [f] "g"(f)
			 : "memory");
#else
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;
	register long r9 __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
#endif
	return result;
}

/**
 * map_memory() - map memory or a file
 * @fd: the file's descriptor, -1 for none
 * @size: bytes
 * @offset: in the file, in bytes
 * @protection: %PROT_READ, %PROT_WRITE
 * @flags: %MAP_PRIVATE | %MAP_ANONYMOUS, for example
 *
 * It is mmap() on both architectures: %SYS_mmap of i386 takes one pointer.
 *
 * Return: the memory, or a negative errno as an address: see is_error().
 */
void *map_memory(int fd, size_t size, size_t offset, int protection, int flags);
/**
 * is_error() - whether map_memory() failed
 * @address: what it returned
 *
 * Return: 1, or 0.
 */
int is_error(const void *address);

/**
 * memcpy() - copy bytes
 * @to: where to
 * @from: where from
 * @size: how many
 *
 * Return: to.
 */
void *memcpy(void *to, const void *from, size_t size);
/**
 * memset() - fill bytes
 * @to: where
 * @byte: with what
 * @size: how many
 *
 * Return: to.
 */
void *memset(void *to, int byte, size_t size);
/**
 * exit_program() - end the program
 * @status: its exit status; any but 0 fails the cell
 */
void exit_program(int status) __attribute__((noreturn));
/**
 * text_length() - the length of a text
 * @text: ends with a zero byte
 *
 * Return: bytes, without the zero.
 */
size_t text_length(const char *text);
/**
 * text_equal() - compare two texts
 * @a: one
 * @b: the other
 *
 * Return: 1 if they are equal, else 0.
 */
int text_equal(const char *a, const char *b);
/**
 * write_all() - write bytes, with as many writes as it takes
 * @fd: a file's descriptor
 * @data: the bytes
 * @size: how many
 *
 * Return: 0, or the negative errno of the failing write.
 */
long write_all(int fd, const void *data, size_t size);
/**
 * file_content() - read as much of a file as there is room for
 * @path: the file
 * @to: where to
 * @room: bytes
 *
 * Return: how many bytes were read, or a negative errno.
 */
long file_content(const char *path, char *to, size_t room);
/**
 * print() - write a text
 * @fd: a file's descriptor; a workload has 2, as the lab reads 1
 * @text: ends with a zero byte
 */
void print(int fd, const char *text);
/**
 * print_number() - write a number in decimal
 * @fd: a file's descriptor
 * @value: the number
 */
void print_number(int fd, uint64_t value);
// Prints "NAME31" to 1.
void print_field(const char *name, uint64_t value);
// Prints "NAME0x1f" to 1.
void print_word(const char *name, unsigned long value);
// Buffer what is printed to 1 until the program ends or the buffer is full, which saves system calls.
enum { HELD_BYTES = 16384 };
void hold_output(void);
/**
 * parse_number() - read a decimal number
 * @text: has nothing else
 *
 * Return: the number, -1 where it is none or does not fit.
 */
long parse_number(const char *text);
/**
 * divide() - divide a number of 64 bits
 * @value: the dividend
 * @divisor: the divisor
 * @remainder: what is left, or NULL
 *
 * A 32-bit program would need libgcc for what the compiler makes of value / divisor.
 *
 * Return: the quotient.
 */
uint64_t divide(uint64_t value, uint32_t divisor, uint32_t *remainder);

// What each program defines; argv and the environment end with NULL, auxv follows the environment.
int program(int argc, char **argv, char **environment);

#endif
