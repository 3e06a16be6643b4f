// SPDX-License-Identifier: GPL-2.0-only
// What a program has at an address when it is started, and what its file has there: a uprobe is in the first alone.
//
//   peek ADDRESS OFFSET SIZE PROGRAM [ARGUMENT...]
//       ADDRESS is the process', OFFSET the file's, both decimal. The process ends before it executes an instruction.
//
// Output, one line each:
//   process HEX
//   file HEX
// Exit status: 0, 2 for bad usage and where the program cannot be started or read.
#include "runtime.h"

enum { TRACEME = 0, PEEKTEXT = 1, SIGKILL = 9, SIGTRAP = 5, LARGEST = 64 };

static void fail(const char *what, const char *about) __attribute__((noreturn));
static void fail(const char *what, const char *about)
{
	print(2, "peek: ");
	print(2, what);
	print(2, about);
	print(2, "\n");
	exit_program(2);
}

static void print_bytes(const char *name, const unsigned char *bytes, long size)
{
	char digits[] = "00";

	print(1, name);
	for (long i = 0; i < size; i++) {
		digits[0] = "0123456789abcdef"[bytes[i] / 16];
		digits[1] = "0123456789abcdef"[bytes[i] % 16];
		print(1, digits);
	}
	print(1, "\n");
}

// It is stopped behind execve: its file is mapped, and the kernel has put its uprobes there.
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

int program(int argc, char **argv, char **environment)
{
	unsigned char bytes[LARGEST + sizeof(long)];
	long address, offset, size, pid;
	int file;

	address = argc >= 5 ? parse_number(argv[1]) : -1;
	offset = argc >= 5 ? parse_number(argv[2]) : -1;
	size = argc >= 5 ? parse_number(argv[3]) : -1;
	if (address < 0 || offset < 0 || size < 1 || size > LARGEST)
		fail("expected ADDRESS OFFSET SIZE PROGRAM [ARGUMENT...]", "");
	pid = start(argv + 4, environment);
	for (long i = 0; i < size; i += (long)sizeof(long)) {
		if (sys4(SYS_ptrace, PEEKTEXT, pid, address + i, bytes + i) < 0) {
			end(pid);
			fail("nothing is mapped at the address in ", argv[4]);
		}
	}
	end(pid);
	print_bytes("process ", bytes, size);
	file = (int)sys3(SYS_open, argv[4], O_RDONLY, 0);
	if (file < 0 || sys3(SYS_lseek, file, offset, 0) != offset || sys3(SYS_read, file, bytes, size) != size)
		fail("cannot read ", argv[4]);
	print_bytes("file ", bytes, size);
	return 0;
}
