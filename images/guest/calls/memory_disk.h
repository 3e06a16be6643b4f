// SPDX-License-Identifier: GPL-2.0-only
// Disks in memory: devices of the module null_blk, as folders of configfs describe them. A request is completed before its
// submission returns, so that nothing waits. The first process of a guest makes a disk; the others find it.
#ifndef MEMORY_DISK_H
#define MEMORY_DISK_H

#include "runtime.h"

// The module makes it: what is written to it is lost.
#define EMPTY_DISK "/dev/nullb0"

enum { OPEN_DIRECT = 040000, BLOCK = 4096, PATH_ROOM = 64 };

struct memory_disk {
	char device[PATH_ROOM];
	int is_new;
};

static inline const char *joined(char *to, const char *folder, const char *name)
{
	size_t length = text_length(folder);

	memcpy(to, folder, length);
	memcpy(to + length, name, text_length(name) + 1);
	return to;
}

static inline void write_setting(const char *folder, const char *name, const char *value)
{
	char path[2 * PATH_ROOM];
	long fd = sys2(SYS_open, joined(path, folder, name), O_WRONLY);

	write_all((int)fd, value, text_length(value));
	sys1(SYS_close, fd);
}

// Of 64 MiB, with a cache that a flush empties.
static inline struct memory_disk make_memory_disk(const char *name)
{
	struct memory_disk disk;
	char folder[PATH_ROOM], path[2 * PATH_ROOM], index[2] = "0";

	sys5(SYS_mount, "none", "/sys/kernel/config", "configfs", 0, 0);
	disk.is_new = sys2(SYS_mkdir, joined(folder, "/sys/kernel/config/nullb/", name), 0700) == 0;
	if (disk.is_new) {
		write_setting(folder, "/size", "64");
		write_setting(folder, "/memory_backed", "1");
		write_setting(folder, "/cache_size", "1");
		write_setting(folder, "/power", "1");
	}
	// Linux 6.1 gives the device a number; later ones, the folder's name.
	if (sys2(SYS_access, joined(disk.device, "/dev/", name), 0) < 0) {
		file_content(joined(path, folder, "/index"), index, 1);
		joined(disk.device, "/dev/nullb", index);
	}
	return disk;
}

#endif
