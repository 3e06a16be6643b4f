// SPDX-License-Identifier: GPL-2.0-only
// Executes a program of three instructions, in a process made by vfork(), and waits for it.
#include "workload.h"
#include <linux/elf.h>

#define FILE "/tmp/lab-exec-program"

enum { BASE = 0x10000, READ_EXECUTE = 5 };	// PF_R | PF_X

#ifdef __i386__
typedef Elf32_Ehdr Header;
typedef Elf32_Phdr Segment;
enum { CLASS = ELFCLASS32, MACHINE = EM_386 };
#define EXIT 0x31, 0xdb, 0x8d, 0x43, 0x01, 0xcd, 0x80	// xor ebx, ebx; lea eax, [ebx + 1]; int 0x80
#else
typedef Elf64_Ehdr Header;
typedef Elf64_Phdr Segment;
enum { CLASS = ELFCLASS64, MACHINE = EM_X86_64 };
#define EXIT 0x31, 0xff, 0x8d, 0x47, 0x3c, 0x0f, 0x05	// xor edi, edi; lea eax, [rdi + 60]; syscall
#endif

static const struct {
	Header header;
	Segment segment;
	unsigned char code[8];
} image = {
	.header = {
		.e_ident = {0x7f, 'E', 'L', 'F', CLASS, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = MACHINE,
		.e_version = EV_CURRENT,
		.e_entry = BASE + offsetof(__typeof__(image), code),
		.e_phoff = sizeof(Header),
		.e_ehsize = sizeof(Header),
		.e_phentsize = sizeof(Segment),
		.e_phnum = 1,
	},
	.segment = {
		.p_type = PT_LOAD,
		.p_flags = READ_EXECUTE,
		.p_vaddr = BASE,
		.p_filesz = sizeof(image),
		.p_memsz = sizeof(image),
		.p_align = 4096,
	},
	.code = {EXIT},
};

void workload_setup(void)
{
	long fd = sys2(SYS_creat, FILE, 0700);

	write_all((int)fd, &image, sizeof(image));
	sys1(SYS_close, fd);
}

void workload(void)
{
	static const char *const arguments[] = {FILE, 0};
	// Without calls, which would write to the stack that both have.
	long pid = sys6(SYS_vfork, 0, 0, 0, 0, 0, 0);

	if (pid == 0) {
		sys6(SYS_execve, FILE, arguments, 0, 0, 0, 0);
		sys6(SYS_exit_group, 127, 0, 0, 0, 0, 0);
	}
	sys4(SYS_wait4, pid, 0, 0, 0);
}
