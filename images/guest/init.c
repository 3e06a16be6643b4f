// SPDX-License-Identifier: GPL-2.0-only
// The guest's first program: mounts the kernel's file systems, loads the drivers that the command channel needs,
// and enters the image that came with the machine, or does the unattended work if there is any and becomes the agent.
#include "runtime.h"

static void mount_at(const char *type, const char *target)
{
	sys2(SYS_mkdir, target, 0755);
	// A kernel built without one of them (tracefs, say) is no reason to stop.
	sys5(SYS_mount, type, target, type, 0, 0);
}

static void complain(const char *what, const char *about, long error)
{
	print(2, "init: ");
	print(2, what);
	print(2, about);
	print(2, ": error ");
	print_number(2, (uint64_t)-error);
	print(2, "\n");
}

static void load_module(const char *path)
{
	long fd = sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0);
	long error = fd < 0 ? fd : sys3(SYS_finit_module, fd, "", 0);

	// A module that is already there, built in or loaded as a dependency, is no error.
	if (error < 0 && error != -E_EXIST)
		complain("cannot load ", path, error);
	if (fd >= 0)
		sys1(SYS_close, fd);
}

// One path a line, in the order of loading; written when the initramfs is made. A list of any length is read, in pieces:
// one that does not fill its room is the last. What is too long for a path is tried as one, and reported by that.
static void load_modules(const char *list)
{
	static char text[4096];
	long fd = sys3(SYS_open, list, O_RDONLY | O_CLOEXEC, 0);
	long room, size = 0;
	char *end = text;

	if (fd < 0)
		return;
	do {
		char *line = text, *at = end;

		room = text + sizeof(text) - 1 - end;
		size = sys3(SYS_read, fd, end, room);
		if (size < 0)
			complain("cannot load ", list, size);
		else
			end += size;
		for (; at < end; at++) {
			if (*at != '\n')
				continue;
			*at = 0;
			load_module(line);
			line = at + 1;
		}
		if (line < end && (size < room || line == text)) {
			*end = 0;
			load_module(line);
			line = end;
		}
		memcpy(text, line, (size_t)(end - line));
		end = text + (end - line);
	} while (size == room);
	sys1(SYS_close, fd);
}

// Stops the machine, at one instruction, until the host has read the kernel's text: a byte for QEMU's pvpanic device, in
// the memory that sysfs lets a program map. QEMU has the device where the guest works alone.
// QEMU's main thread may find the CPU stopped before it stops the clock, and moves that on to the next timer, of a tick at
// the latest. So the instruction behind is one that jumps to itself for some ticks: how often it runs is all that differs.
static void stop_for_host(void)
{
	static const char enable[] = "/sys/bus/pci/devices/0000:00:1e.0/enable";
	static const char memory[] = "/sys/bus/pci/devices/0000:00:1e.0/resource0";
	long fd = sys3(SYS_open, enable, O_WRONLY | O_CLOEXEC, 0);
	const long some_ticks[2] = {0, 30000000};
	long child;
	void *device;

	if (fd < 0)
		return;
	sys3(SYS_write, fd, "1", 1);
	sys1(SYS_close, fd);
	fd = sys3(SYS_open, memory, O_RDWR | O_CLOEXEC, 0);
	device = map_memory((int)fd, 4096, 0, PROT_READ | PROT_WRITE, MAP_SHARED);
	sys1(SYS_close, fd);
	if (is_error(device)) {
		complain("cannot map ", memory, (long)device);
		return;
	}
	child = sys0(SYS_fork);
	if (child < 0) {
		complain("cannot stop for the host: ", "fork", child);
		return;
	}
	if (child == 0)
		__asm__ volatile("movb $1, (%0)\n1:\tjmp 1b" : : "r"(device) : "memory");
	sys2(SYS_nanosleep, some_ticks, NULL);
	sys2(SYS_kill, child, 9);
	sys4(SYS_wait4, child, NULL, 0, NULL);
}

// Work that came with the initramfs, done before the host is heard: no input of the host's can change its course.
// What it prints is in /sealed/output, and how it ended in /sealed/status, as a decimal wait status.
// Returns whether there is any.
static int do_sealed_work(char **environment)
{
	static char *const shell[] = {"/bin/sh", "/sealed/work.sh", NULL};
	static const int create = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
	long script = sys3(SYS_open, shell[1], O_RDONLY | O_CLOEXEC, 0), child, file;
	int status = 0;

	if (script < 0)
		return 0;
	sys1(SYS_close, script);
	stop_for_host();
	child = sys0(SYS_fork);
	if (child == 0) {
		file = sys3(SYS_open, "/sealed/output", create, 0600);
		sys2(SYS_dup2, file, 1);
		sys2(SYS_dup2, file, 2);
		complain("cannot start ", shell[0], sys3(SYS_execve, shell[0], shell, environment));
		exit_program(127);
	}
	sys4(SYS_wait4, child, &status, 0, NULL);
	file = sys3(SYS_open, "/sealed/status", create, 0600);
	print_number((int)file, (uint64_t)(child < 0 ? -child : status));
	sys1(SYS_close, file);
	return 1;
}

// Until its pool is seeded the kernel makes a key for each random number: on Linux 6.1 creating a file takes 22,625
// instructions then, and 15,007 later. By itself it would seed it when enough interrupts have come, after minutes of the
// guest's time, which are a moment of the host's. The seed is the same for all: guests are to be equal.
static void seed_random(char **environment)
{
	static char *const seed[] = {"/bin/seedrandom", "/dev/zero", NULL};
	long child = sys0(SYS_fork);

	if (child == 0) {
		complain("cannot start ", seed[0], sys3(SYS_execve, seed[0], seed, environment));
		exit_program(127);
	}
	sys4(SYS_wait4, child, NULL, 0, NULL);
}

// devtmpfs has none of them, and a program that writes to /dev/stdout, as kselftest's runner does, would make a file.
static void link_streams(void)
{
	sys2(SYS_symlink, "/proc/self/fd", "/dev/fd");
	sys2(SYS_symlink, "/proc/self/fd/0", "/dev/stdin");
	sys2(SYS_symlink, "/proc/self/fd/1", "/dev/stdout");
	sys2(SYS_symlink, "/proc/self/fd/2", "/dev/stderr");
}

int program(int argc, char **argv, char **environment)
{
	static char *const agent[] = {"/bin/agent", NULL};
	static char *const image[] = {"/bin/sh", "/image/enter.sh", NULL};
	long settings;

	(void)argc;
	(void)argv;
	mount_at("proc", "/proc");
	mount_at("sysfs", "/sys");
	mount_at("devtmpfs", "/dev");
	mount_at("debugfs", "/sys/kernel/debug");
	mount_at("tracefs", "/sys/kernel/tracing");
	load_modules("/etc/modules");
	load_modules("/image/modules");
	link_streams();
	settings = sys3(SYS_open, "/image/settings", O_RDONLY | O_CLOEXEC, 0);
	if (settings >= 0) {
		sys1(SYS_close, settings);
		complain("cannot start ", image[0], sys3(SYS_execve, image[0], image, environment));
		return 1;
	}
	// What follows sealed work is not measured, and would only patch a branch of the text that is compared afterwards.
	if (!do_sealed_work(environment))
		seed_random(environment);
	complain("cannot start ", agent[0], sys3(SYS_execve, agent[0], agent, environment));
	return 1;
}
