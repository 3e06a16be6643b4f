// SPDX-License-Identifier: GPL-2.0-only
// Prints the bytes at an address of a started program and those of its file: a uprobe changes only the former.
//
//   peek -a ADDRESS OFFSET SIZE PROGRAM [ARGUMENT...]
//       ADDRESS is the process', OFFSET the file's, both decimal. The process ends before it executes an instruction.
//   peek -l LIBRARY OFFSET SIZE PROGRAM [ARGUMENT...]
//       The same of a shared library, whose OFFSET is executed at an address that each process has for itself. The loader
//       has mapped it; the process ends before it executes an instruction of the program.
//
// Output, one line each:
//   process HEX
//   file HEX
// Exit status: 0, 2 for bad usage and where the program cannot be started or read.
#include "failure.h"
#include "mapping.h"

enum { TRACEME = 0, PEEKTEXT = 1, POKETEXT = 4, CONT = 7, SIGKILL = 9, SIGTRAP = 5, LARGEST = 64 };
enum { AT_NULL = 0, AT_ENTRY = 9, BREAKPOINT = 0xcc, NAME_BYTES = 32, TEXT_BYTES = 1 << 16 };

const char program_name[] = "peek";

// Starts the program and stops it after execve: its file is mapped, and the kernel has inserted its uprobes.
static long start(char **argv, char **environment)
{
	int status = 0;
	long pid = sys0(SYS_fork);

	if (pid < 0)
		fail("cannot fork", "");
	if (!pid) {
		sys4(SYS_ptrace, TRACEME, 0, 0, 0);
		sys3(SYS_execve, argv[0], argv, environment);
		exit_program(2);
	}
	while (sys4(SYS_wait4, pid, &status, 0, 0) == -E_INTR)
		;
	if (status != (SIGTRAP << 8 | 0x7f))
		fail("cannot start ", argv[0]);
	return pid;
}

static void end(long pid)
{
	sys2(SYS_kill, pid, SIGKILL);
	while (sys4(SYS_wait4, pid, 0, 0, 0) == -E_INTR)
		;
}

static void end_and_fail(long pid, const char *what, const char *about) __attribute__((noreturn));
static void end_and_fail(long pid, const char *what, const char *about)
{
	end(pid);
	fail(what, about);
}

static size_t append(char *text, size_t at, const char *more)
{
	memcpy(text + at, more, text_length(more));
	return at + text_length(more);
}

// Reads a file of /proc/PID, as far as the buffer holds it. Returns the bytes read.
static long read_of_process(long pid, const char *file, char *text)
{
	char name[NAME_BYTES], digits[21];
	size_t at = append(name, 0, "/proc/"), digit = sizeof(digits);
	long size;

	for (long left = pid; left; left /= 10)
		digits[--digit] = (char)('0' + left % 10);
	memcpy(name + at, digits + digit, sizeof(digits) - digit);
	at = append(name, at + sizeof(digits) - digit, file);
	name[at] = 0;
	size = file_content(name, text, TEXT_BYTES);
	if (size < 0)
		end_and_fail(pid, "cannot read ", name);
	return size;
}

// Runs to the program's first instruction, by a breakpoint: the loader has mapped all libraries by then.
static void run_to_entry(long pid, const char *program)
{
	static long auxiliary[TEXT_BYTES / sizeof(long)];
	long words = read_of_process(pid, "/auxv", (char *)auxiliary) / (long)sizeof(long), entry = 0, code = 0;
	int status = 0;

	for (long i = 0; i + 1 < words && auxiliary[i] != AT_NULL; i += 2)
		if (auxiliary[i] == AT_ENTRY)
			entry = auxiliary[i + 1];
	if (sys4(SYS_ptrace, PEEKTEXT, pid, entry, &code) < 0 ||
	    sys4(SYS_ptrace, POKETEXT, pid, entry, (code & ~0xffL) | BREAKPOINT) < 0)
		end_and_fail(pid, "no breakpoint can be set at the entry of ", program);
	sys4(SYS_ptrace, CONT, pid, 0, 0);
	while (sys4(SYS_wait4, pid, &status, 0, 0) == -E_INTR)
		;
	if ((status & 0x7f) != 0x7f)
		fail("the loader did not start ", program);
	if (status != (SIGTRAP << 8 | 0x7f))
		end_and_fail(pid, "a signal before the entry of ", program);
}

int program(int argc, char **argv, char **environment)
{
	unsigned char bytes[LARGEST + sizeof(long)];
	static char maps[TEXT_BYTES + 1];
	int is_library = argc >= 6 && text_equal(argv[1], "-l"), file;
	const char *path;
	long address, offset, size, pid;

	offset = argc >= 6 ? parse_number(argv[3]) : -1;
	size = argc >= 6 ? parse_number(argv[4]) : -1;
	address = argc >= 6 && text_equal(argv[1], "-a") ? parse_number(argv[2]) : -1;
	if ((address < 0 && !is_library) || offset < 0 || size < 1 || size > LARGEST)
		fail("expected -a ADDRESS or -l LIBRARY, and OFFSET SIZE PROGRAM [ARGUMENT...]", "");
	path = is_library ? argv[2] : argv[5];
	pid = start(argv + 5, environment);
	if (is_library) {
		run_to_entry(pid, argv[5]);
		maps[read_of_process(pid, "/maps", maps)] = 0;
		address = (long)find_mapping(maps, path, (unsigned long)offset);
		if (!address)
			end_and_fail(pid, "the program has not mapped ", path);
	}
	for (long i = 0; i < size; i += (long)sizeof(long))
		if (sys4(SYS_ptrace, PEEKTEXT, pid, address + i, bytes + i) < 0)
			end_and_fail(pid, "nothing is mapped at the address in ", argv[5]);
	end(pid);
	print_hex("process ", bytes, size);
	file = (int)sys3(SYS_open, path, O_RDONLY, 0);
	if (file < 0 || sys3(SYS_lseek, file, offset, 0) != offset || sys3(SYS_read, file, bytes, size) != size)
		fail("cannot read ", path);
	print_hex("file ", bytes, size);
	return 0;
}
