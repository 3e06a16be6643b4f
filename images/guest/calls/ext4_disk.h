// SPDX-License-Identifier: GPL-2.0-only
// An ext4 file system with a journal on the disk in memory: what mke2fs would write, as there is none in the guest. One
// group of blocks without checksums; Documentation/filesystems/ext4 has the places of the fields.
#ifndef EXT4_DISK_H
#define EXT4_DISK_H

#include "memory_disk.h"
#include <linux/mount.h>

#define EXT4_FOLDER "/tmp/lab-ext4"

enum {
	DISK_BLOCKS = 16384, INODES = 1024, INODE_SIZE = 256,
	GROUPS_AT = 1, BLOCK_BITMAP_AT = 2, INODE_BITMAP_AT = 3, INODES_AT = 4, ROOT_AT = 68, JOURNAL_AT = 69,
	JOURNAL_BLOCKS = 1024, USED_BLOCKS = JOURNAL_AT + JOURNAL_BLOCKS,
	ROOT_INODE = 2, JOURNAL_INODE = 8, RESERVED_INODES = 10,
};

static char disk_block[BLOCK];

static inline void set_half(int at, unsigned value)
{
	disk_block[at] = (char)value;
	disk_block[at + 1] = (char)(value >> 8);
}

static inline void set_word(int at, unsigned value)
{
	set_half(at, value);
	set_half(at + 2, value >> 16);
}

static inline void set_big_endian(int at, unsigned value)
{
	set_word(at, __builtin_bswap32(value));
}

static inline void set_bits(int from, int to)
{
	for (int bit = from; bit < to; bit++)
		disk_block[bit / 8] |= (char)(1 << bit % 8);
}

static inline void write_block(long fd, int number)
{
	sys3(SYS_lseek, fd, (long)number * BLOCK, 0);
	write_all((int)fd, disk_block, BLOCK);
	memset(disk_block, 0, BLOCK);
}

// An inode whose content is blocks in a row, in the first block of the table.
static inline void set_inode(int number, unsigned mode, unsigned links, int first_block, int blocks)
{
	int at = (number - 1) * INODE_SIZE;

	set_half(at, mode);
	set_word(at + 4, (unsigned)blocks * BLOCK);
	set_half(at + 26, links);
	set_word(at + 28, (unsigned)blocks * (BLOCK / 512));
	set_word(at + 32, 0x80000);		// EXT4_EXTENTS_FL
	set_half(at + 40, 0xf30a);		// the header of the extents: one of four
	set_half(at + 42, 1);
	set_half(at + 44, 4);
	set_half(at + 56, (unsigned)blocks);	// the extent, from the file's beginning
	set_word(at + 60, (unsigned)first_block);
	set_half(at + 128, 32);
}

static inline void set_entry(int at, unsigned length, const char *name)
{
	set_word(at, ROOT_INODE);
	set_half(at + 4, length);
	disk_block[at + 6] = (char)text_length(name);
	disk_block[at + 7] = 2;
	memcpy(disk_block + at + 8, name, text_length(name));
}

static inline void make_ext4(long fd)
{
	static const int super = 1024;

	set_word(super, INODES);
	set_word(super + 4, DISK_BLOCKS);
	set_word(super + 12, DISK_BLOCKS - USED_BLOCKS);
	set_word(super + 16, INODES - RESERVED_INODES);
	set_word(super + 24, 2);		// blocks of 4096 bytes
	set_word(super + 28, 2);
	set_word(super + 32, 8 * BLOCK);
	set_word(super + 36, 8 * BLOCK);
	set_word(super + 40, INODES);
	set_half(super + 54, 0xffff);		// no check after so many mounts
	set_half(super + 56, 0xef53);
	set_half(super + 58, 1);		// clean
	set_half(super + 60, 1);		// go on after errors
	set_word(super + 76, 1);
	set_word(super + 84, RESERVED_INODES + 1);
	set_half(super + 88, INODE_SIZE);
	set_word(super + 92, 0x4 | 0x8);	// has_journal, ext_attr
	set_word(super + 96, 0x2 | 0x40);	// filetype, extents
	set_word(super + 100, 0x1 | 0x2);	// sparse_super, large_file
	set_word(super + 224, JOURNAL_INODE);
	write_block(fd, 0);
	set_word(0, BLOCK_BITMAP_AT);
	set_word(4, INODE_BITMAP_AT);
	set_word(8, INODES_AT);
	set_half(12, DISK_BLOCKS - USED_BLOCKS);
	set_half(14, INODES - RESERVED_INODES);
	set_half(16, 1);
	write_block(fd, GROUPS_AT);
	set_bits(0, USED_BLOCKS);
	set_bits(DISK_BLOCKS, 8 * BLOCK);
	write_block(fd, BLOCK_BITMAP_AT);
	set_bits(0, RESERVED_INODES);
	set_bits(INODES, 8 * BLOCK);
	write_block(fd, INODE_BITMAP_AT);
	set_inode(ROOT_INODE, 040755, 2, ROOT_AT, 1);
	set_inode(JOURNAL_INODE, 0100600, 1, JOURNAL_AT, JOURNAL_BLOCKS);
	write_block(fd, INODES_AT);
	set_entry(0, 12, ".");
	set_entry(12, BLOCK - 12, "..");
	write_block(fd, ROOT_AT);
	set_big_endian(0, 0xc03b3998);		// the journal's superblock
	set_big_endian(4, 4);
	set_big_endian(12, BLOCK);
	set_big_endian(16, JOURNAL_BLOCKS);
	set_big_endian(20, 1);
	set_big_endian(24, 1);
	set_big_endian(64, 1);
	write_block(fd, JOURNAL_AT);
}

// The file system is mounted at EXT4_FOLDER then, and stays so for later processes.
static inline void mount_ext4(void)
{
	struct memory_disk disk = make_memory_disk("lab-ext4");
	long fd;

	if (!disk.is_new)
		return;
	fd = sys2(SYS_open, disk.device, O_WRONLY);
	make_ext4(fd);
	sys1(SYS_fsync, fd);
	sys1(SYS_close, fd);
	sys2(SYS_mkdir, EXT4_FOLDER, 0700);
	// With times of reads a call's cost depends on the second in which its file was written.
	sys5(SYS_mount, disk.device, EXT4_FOLDER, "ext4", MS_NOATIME, 0);
}

#endif
