// SPDX-License-Identifier: GPL-2.0-only
// Writes a byte to a terminal, and reads it at the other end.
#include "workload.h"
#include <linux/fcntl.h>
#include <asm/ioctls.h>

#define FOLDER "/tmp/lab-pty"

enum { NO_CONTROLLING_TERMINAL = 0400 };	// O_NOCTTY of <asm/fcntl.h>

static long terminal, other_end;
static char byte = 'x';

void workload_setup(void)
{
	static const int unlocked;

	// Another process has mounted it if the folder is there.
	if (sys2(SYS_mkdir, FOLDER, 0700) == 0)
		sys5(SYS_mount, "none", FOLDER, "devpts", 0, 0);
	other_end = sys2(SYS_open, FOLDER "/ptmx", O_RDWR | NO_CONTROLLING_TERMINAL);
	sys3(SYS_ioctl, other_end, TIOCSPTLCK, &unlocked);
	terminal = sys3(SYS_ioctl, other_end, TIOCGPTPEER, O_RDWR | NO_CONTROLLING_TERMINAL);
}

void workload(void)
{
	sys3(SYS_write, terminal, &byte, 1);
	sys3(SYS_read, other_end, &byte, 1);
}
