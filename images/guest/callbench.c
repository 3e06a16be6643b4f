// SPDX-License-Identifier: GPL-2.0-only
// What one system call costs: the call itself, never the vDSO's function.
//
//   callbench [-e ENTRY] [-N NUMBER] [ARGUMENT...] OPTIONS          options as in bench.c
//   ENTRY: auto (what a C library takes: sysenter or syscall where there is one), int80, sysenter, syscall
//   NUMBER: the system call's, of the entry's own table. Without it gettimeofday is called, as the gtodbench of 2005 did.
//   ARGUMENT, at most six: -a HEX a number, -t TEXT a pointer to the text, -z SIZE a pointer to so many zeroed bytes
//
// "called" ends with number=N arguments=0x..,0x..,0x..,0x..,0x..,0x..: what every call passed
#include "bench.h"
#include "failure.h"

const char program_name[] = "callbench";

enum { AT_SYSINFO = 32, ENOSYS = 38, BUFFER_SPACE = 1 << 17, ARGUMENTS = 6 };

#ifdef __i386__
enum { GETTIMEOFDAY_INT80 = SYS_gettimeofday };
#else
enum { GETTIMEOFDAY_INT80 = 78 }; // int $0x80 takes the 32-bit numbers
#endif

typedef long entry_loop(long calls);

static struct {
	long number, arguments[ARGUMENTS], left;
} call = {.number = -1};

static const char *entry = "auto";
static int given, is_gettimeofday;
static char **environment;
static char buffers[BUFFER_SPACE] __attribute__((aligned(16)));
static size_t buffers_used;

// The loops are wholly in assembly so that a batch of n calls is exactly n times one round and a constant. All registers
// may be arguments, so the count is in memory.
#define ROUNDS(body) "jmp 2f\n1: mov %[number], %%eax\n" body "\n2: decl %[left]\njns 1b\n"
#define WITH_SIXTH(rounds) "push %%ebp\nmov %[sixth], %%ebp\n" rounds "pop %%ebp"

#ifdef __i386__
static long int80_loop(long calls)
{
	long result = 0, b = call.arguments[0], c = call.arguments[1], d = call.arguments[2], s = call.arguments[3],
	     t = call.arguments[4];

	call.left = calls;
	__asm__ volatile(WITH_SIXTH(ROUNDS("int $0x80"))
			 : "+a"(result), "+b"(b), "+c"(c), "+d"(d), "+S"(s), "+D"(t), [left] "+m"(call.left)
			 : [number] "m"(call.number), [sixth] "m"(call.arguments[5])
			 : "memory", "cc");
	return result;
}

static long vsyscall;

static long sysenter_loop(long calls)
{
	long result = 0, b = call.arguments[0], c = call.arguments[1], d = call.arguments[2], s = call.arguments[3],
	     t = call.arguments[4];

	call.left = calls;
	__asm__ volatile(WITH_SIXTH(ROUNDS("call *%[entry]"))
			 : "+a"(result), "+b"(b), "+c"(c), "+d"(d), "+S"(s), "+D"(t), [left] "+m"(call.left)
			 : [number] "m"(call.number), [sixth] "m"(call.arguments[5]), [entry] "m"(vsyscall)
			 : "memory", "cc");
	return result;
}

// The kernel's entry page uses sysenter only on a CPU that has it: look at the code it offers.
static int has_sysenter(void)
{
	const long *auxiliary;
	const unsigned char *code;

	while (*environment++)
		;
	for (auxiliary = (const long *)environment; auxiliary[0]; auxiliary += 2)
		if (auxiliary[0] == AT_SYSINFO)
			vsyscall = auxiliary[1];
	code = (const unsigned char *)vsyscall;
	for (int i = 0; code && i < 24; i++)
		if (code[i] == 0x0f && code[i + 1] == 0x34)
			return 1;
	return 0;
}
#else
static long int80_loop(long calls)
{
	long result = 0, b = call.arguments[0], c = call.arguments[1], d = call.arguments[2], s = call.arguments[3],
	     t = call.arguments[4];

	call.left = calls;
	__asm__ volatile("push %%rbp\nmov %[sixth], %%rbp\n" ROUNDS("int $0x80") "pop %%rbp"
			 : "+a"(result), "+b"(b), "+c"(c), "+d"(d), "+S"(s), "+D"(t), [left] "+m"(call.left)
			 : [number] "m"(call.number), [sixth] "m"(call.arguments[5])
			 : "memory", "cc", "r8", "r9", "r10", "r11");
	return (int)result;
}

static long syscall_loop(long calls)
{
	long result = 0;
	register long r10 __asm__("r10") = call.arguments[3];
	register long r8 __asm__("r8") = call.arguments[4];
	register long r9 __asm__("r9") = call.arguments[5];

	call.left = calls;
	__asm__ volatile(ROUNDS("syscall")
			 : "+a"(result), "+r"(r10), "+r"(r8), "+r"(r9), [left] "+m"(call.left)
			 : [number] "m"(call.number), "D"(call.arguments[0]), "S"(call.arguments[1]), "d"(call.arguments[2])
			 : "memory", "cc", "rcx", "r11");
	return result;
}
#endif

static entry_loop *choose_entry(void)
{
	int automatic = text_equal(entry, "auto");

#ifdef __i386__
	if ((automatic || text_equal(entry, "sysenter")) && has_sysenter()) {
		entry = "sysenter";
		return sysenter_loop;
	}
#else
	if (automatic || text_equal(entry, "syscall")) {
		entry = "syscall";
		return syscall_loop;
	}
#endif
	if (automatic || text_equal(entry, "int80")) {
		entry = "int80";
		return int80_loop;
	}
	fail("this CPU and kernel have no system call entry ", entry);
}

static unsigned long parse_word(const char *text)
{
	const char *digit = text;
	unsigned long value = 0;

	for (; *digit; digit++) {
		int low = *digit | 0x20;

		if (digit - text >= (long)(2 * sizeof(value)))
			fail("too large a number for an argument: ", text);
		if (low >= '0' && low <= '9')
			value = value * 16 + (unsigned long)(low - '0');
		else if (low >= 'a' && low <= 'f')
			value = value * 16 + (unsigned long)(low - 'a' + 10);
		else
			fail("an argument is no hexadecimal number: ", text);
	}
	return value;
}

static void *zeroed(long size)
{
	void *buffer = buffers + buffers_used;

	if (size < 1 || (size_t)size > sizeof(buffers) - buffers_used)
		fail("no room for such buffers", "");
	buffers_used += ((size_t)size + 15) & ~(size_t)15;
	return buffer;
}

static void add_argument(long value)
{
	if (given == ARGUMENTS)
		fail("a system call has at most six arguments", "");
	call.arguments[given++] = value;
}

static int take_option(const char *option, const char *value)
{
	if (text_equal(option, "-e"))
		entry = value;
	else if (text_equal(option, "-N"))
		call.number = parse_number(value);
	else if (text_equal(option, "-a"))
		add_argument((long)parse_word(value));
	else if (text_equal(option, "-t"))
		add_argument((long)value);
	else if (text_equal(option, "-z"))
		add_argument((long)zeroed(parse_number(value)));
	else
		return 0;
	return 1;
}

static struct bench bench;

static void prepare(void)
{
	bench.loop = choose_entry();
	bench.entry = entry;
	is_gettimeofday = call.number < 0;
	if (is_gettimeofday) {
		call.number = bench.loop == int80_loop ? GETTIMEOFDAY_INT80 : SYS_gettimeofday;
		if (!given)
			add_argument((long)zeroed(2 * sizeof(long)));
	}
}

// A call may fail on purpose; one that does not exist measures nothing.
static void check(long result)
{
	if (is_gettimeofday && result)
		fail("gettimeofday failed", "");
	if (result == -ENOSYS)
		fail("the guest's kernel has no such system call", "");
}

static void print_called(void)
{
	print(1, " number=");
	print_number(1, (uint64_t)call.number);
	for (int i = 0; i < ARGUMENTS; i++)
		print_word(i ? "," : " arguments=", (unsigned long)call.arguments[i]);
}

static struct bench bench = {
	.number = &call.number,
	.check = check,
	.take_option = take_option,
	.prepare = prepare,
	.print_called = print_called,
};

int program(int argc, char **argv, char **env)
{
	environment = env;
	return run_bench(&bench, argc, argv);
}
