// SPDX-License-Identifier: GPL-2.0-only
// Makes a process that executes another program, which ends at once, and waits for it.
#include "workload.h"
#include <linux/elf.h>

enum { START = 0x10000, AT = 0x80 };

// A whole program: no host has one that is as small on every image.
static struct {
#ifdef __i386__
	Elf32_Ehdr header;
	Elf32_Phdr segment;
#else
	Elf64_Ehdr header;
	Elf64_Phdr segment;
#endif
	unsigned char code[16] __attribute__((aligned(AT)));
} file = {
	.header = {
		.e_ident = {0x7f, 'E', 'L', 'F', sizeof(long) / 4, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_EXEC,
		.e_machine = sizeof(long) == 4 ? EM_386 : EM_X86_64,
		.e_version = EV_CURRENT,
		.e_entry = START + AT,
		.e_phoff = sizeof(file.header),
		.e_ehsize = sizeof(file.header),
		.e_phentsize = sizeof(file.segment),
		.e_phnum = 1,
	},
	.segment = {
		.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_vaddr = START,
		.p_filesz = sizeof(file),
		.p_memsz = sizeof(file),
		.p_align = 0x1000,
	},
	.code = {
		0x31, 0xff,				// xor %edi, %edi
		0x31, 0xdb,				// xor %ebx, %ebx
		0xb8, __NR_exit_group, 0, 0, 0,		// mov $exit_group, %eax
#ifdef __i386__
		0xcd, 0x80,				// int $0x80
#else
		0x0f, 0x05,				// syscall
#endif
	},
};

#define PROGRAM "/tmp/lab-exec"

void workload_setup(void)
{
	long fd = sys2(SYS_creat, PROGRAM, 0700);

	write_all((int)fd, &file, sizeof(file));
	sys1(SYS_close, fd);
}

void workload(void)
{
	long pid = sys0(SYS_fork);

	if (pid == 0) {
		sys3(SYS_execve, PROGRAM, 0, 0);
		sys1(SYS_exit_group, 1);
	}
	sys4(SYS_wait4, pid, 0, 0, 0);
}
