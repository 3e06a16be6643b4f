// SPDX-License-Identifier: GPL-2.0-only
// What the plugins use of the C library that QEMU has loaded: the lab needs none of its headers on a host.
#ifndef HOST_H
#define HOST_H

#include <stddef.h>

enum { O_RDONLY, O_WRONLY, O_RDWR, O_CREAT = 0100, O_TRUNC = 01000, O_APPEND = 02000, O_CLOEXEC = 02000000 };
enum { SEEK_END = 2 };
enum { PROT_READ = 1, PROT_WRITE = 2, MAP_SHARED = 1 };
#define MAP_FAILED ((void *)-1)

int open(const char *path, int flags, ...);
long read(int file, void *data, size_t size);
long write(int file, const void *data, size_t size);
long lseek(int file, long offset, int whence);
int posix_fallocate(int file, long offset, long size);
void *mmap(void *at, size_t size, int protection, int flags, int file, long offset);
int snprintf(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
void *memcpy(void *to, const void *from, size_t size);
void *memset(void *to, int byte, size_t size);
int memcmp(const void *one, const void *other, size_t size);
size_t strlen(const char *text);
int strcmp(const char *one, const char *other);
int strncmp(const char *one, const char *other, size_t size);
unsigned long long strtoull(const char *text, char **end, int base);

#endif
