// SPDX-License-Identifier: GPL-2.0-only
// See runtime.h.
#include "runtime.h"

#ifdef __i386__
long syscall5(long number, long a, long b, long c, long d, long e)
{
	long result;

	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e)
			 : "memory");
	return result;
}

__asm__(".globl _start\n"
	"_start:\n"
	"	xorl %ebp, %ebp\n"
	"	movl %esp, %eax\n"
	"	andl $-16, %esp\n"
	"	subl $12, %esp\n"
	"	pushl %eax\n"
	"	call start_program\n");
#else
long syscall5(long number, long a, long b, long c, long d, long e)
{
	long result;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = e;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
			 : "rcx", "r11", "memory");
	return result;
}

__asm__(".globl _start\n"
	"_start:\n"
	"	xorl %ebp, %ebp\n"
	"	movq %rsp, %rdi\n"
	"	andq $-16, %rsp\n"
	"	call start_program\n");
#endif

__attribute__((used, noreturn)) void start_program(long *stack)
{
	int argc = (int)stack[0];
	char **argv = (char **)(stack + 1);

	exit_program(program(argc, argv, argv + argc + 1));
}

static struct {
	char text[HELD_BYTES];
	size_t size;
	int is_held;
} output;

static void let_go(void)
{
	write_all(1, output.text, output.size);
	output.size = 0;
}

void hold_output(void)
{
	output.is_held = 1;
}

void exit_program(int status)
{
	let_go();
	for (;;)
		sys1(SYS_exit_group, status);
}

// The compiler may call these two by name for structure copies and initialisers.
void *memcpy(void *to, const void *from, size_t size)
{
	unsigned char *t = to;
	const unsigned char *f = from;

	__asm__ volatile("rep movsb" : "+D"(t), "+S"(f), "+c"(size) : : "memory");
	return to;
}

void *memset(void *to, int byte, size_t size)
{
	unsigned char *t = to;

	__asm__ volatile("rep stosb" : "+D"(t), "+c"(size) : "a"(byte) : "memory");
	return to;
}

size_t text_length(const char *text)
{
	size_t n = 0;

	while (text[n])
		n++;
	return n;
}

int text_equal(const char *a, const char *b)
{
	while (*a && *a == *b) {
		a++;
		b++;
	}
	return *a == *b;
}

long write_all(int fd, const void *data, size_t size)
{
	const char *p = data;

	while (size) {
		long n = sys3(SYS_write, fd, p, size);

		if (n == -E_INTR)
			continue;
		if (n < 0)
			return n;
		p += n;
		size -= (size_t)n;
	}
	return 0;
}

long file_content(const char *path, char *to, size_t room)
{
	long fd = sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0), size = 0, more = 1;

	if (fd < 0)
		return fd;
	while (more > 0 && (size_t)size < room) {
		more = sys3(SYS_read, fd, to + size, room - (size_t)size);
		size += more > 0 ? more : 0;
	}
	sys1(SYS_close, fd);
	return more < 0 ? more : size;
}

void print(int fd, const char *text)
{
	size_t size = text_length(text);

	if (fd != 1 || !output.is_held || size > HELD_BYTES) {
		write_all(fd, text, size);
		return;
	}
	if (size > HELD_BYTES - output.size)
		let_go();
	memcpy(output.text + output.size, text, size);
	output.size += size;
}

uint64_t divide(uint64_t value, uint32_t divisor, uint32_t *remainder)
{
#ifdef __i386__
	uint32_t high = (uint32_t)(value >> 32), low = (uint32_t)value, quotient_high, quotient_low, rest;

	__asm__("divl %4" : "=a"(quotient_high), "=d"(rest) : "0"(high), "1"(0), "r"(divisor));
	__asm__("divl %4" : "=a"(quotient_low), "=d"(rest) : "0"(low), "1"(rest), "r"(divisor));
	if (remainder)
		*remainder = rest;
	return (uint64_t)quotient_high << 32 | quotient_low;
#else
	if (remainder)
		*remainder = (uint32_t)(value % divisor);
	return value / divisor;
#endif
}

void print_number(int fd, uint64_t value)
{
	char digits[21];
	size_t at = sizeof(digits);

	digits[--at] = 0;
	do {
		uint32_t digit;

		value = divide(value, 10, &digit);
		digits[--at] = (char)('0' + digit);
	} while (value);
	print(fd, digits + at);
}

long parse_number(const char *text)
{
	long value = 0;

	if (!*text)
		return -1;
	for (; *text; text++) {
		if (*text < '0' || *text > '9' || value > 200000000)
			return -1;
		value = value * 10 + (*text - '0');
	}
	return value;
}

#ifdef __i386__
void *map_memory(int fd, size_t size, size_t offset, int protection, int flags)
{
	unsigned long arguments[6] = {0, size, protection, flags, fd, offset};

	return (void *)sys1(SYS_mmap, arguments);
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

void print_field(const char *name, uint64_t value)
{
	print(1, name);
	print_number(1, value);
}

void print_word(const char *name, unsigned long value)
{
	char digits[2 * sizeof(value) + 1];
	char *first = digits + sizeof(digits) - 1;

	*first = 0;
	do {
		*--first = "0123456789abcdef"[value % 16];
		value /= 16;
	} while (value);
	print(1, name);
	print(1, "0x");
	print(1, first);
}
