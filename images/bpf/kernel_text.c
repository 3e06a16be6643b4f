// SPDX-License-Identifier: GPL-2.0-only
// See kernel_text.h.
#include "kernel_text.h"
#include "lists.h"

static const char core[] = "/proc/kcore";

char *text_before, *text_now;

static int core_fd;
static long core_offset;
static size_t kernel_size, size;
static const void *own_text;

static long read_text(char *to)
{
	for (size_t at = 0; at < kernel_size;) {
		long got = sys4(SYS_pread64, core_fd, to + at, kernel_size - at, (size_t)core_offset + at);

		if (got <= 0)
			return got ?: -E_NOENT;
		at += (size_t)got;
	}
	memcpy(to + kernel_size, own_text, size - kernel_size);
	return 0;
}

long offset_in(const char *path, unsigned long address, size_t wanted)
{
	struct {
		unsigned char ident[16];
		uint16_t type, machine;
		uint32_t version;
		uint64_t entry, headers, sections;
		uint32_t flags;
		uint16_t size, header_size, header_count;
	} elf;
	struct {
		uint32_t type, flags;
		uint64_t offset, address, physical, file_size, size, alignment;
	} header;
	long fd = sys3(SYS_open, path, O_RDONLY | O_CLOEXEC, 0), found = -E_NOENT;

	if (fd < 0)
		return fd;
	sys4(SYS_pread64, fd, &elf, sizeof(elf), 0);
	for (int i = 0; found < 0 && i < elf.header_count; i++) {
		sys4(SYS_pread64, fd, &header, sizeof(header), elf.headers + (uint64_t)i * sizeof(header));
		if (header.type == 1 && header.address <= address && address + wanted - header.address <= header.size)
			found = (long)(header.offset + address - header.address);
	}
	sys1(SYS_close, fd);
	return found;
}

long watch_text(unsigned long start, unsigned long end, const void *own, size_t own_size)
{
	kernel_size = end - start;
	size = kernel_size + own_size;
	own_text = own;
	core_offset = offset_in(core, start, kernel_size);
	if (core_offset < 0)
		return core_offset;
	core_fd = (int)sys3(SYS_open, core, O_RDONLY | O_CLOEXEC, 0);
	text_before = room_for(size);
	text_now = room_for(size);
	if (core_fd < 0)
		return core_fd;
	if (is_error(text_before) || is_error(text_now))
		return (long)(is_error(text_before) ? text_before : text_now);
	return read_text(text_now) ?: read_text(text_before);
}

long remember_text(void)
{
	return read_text(text_before);
}

long changed_bytes(void)
{
	long changed = 0, error = read_text(text_now);

	if (error)
		return error;
	for (size_t at = 0; at < size; at++) {
		while (at % 8 == 0 && at + 8 <= size && *(uint64_t *)(text_now + at) == *(uint64_t *)(text_before + at))
			at += 8;
		changed += at < size && text_now[at] != text_before[at];
	}
	return changed;
}
