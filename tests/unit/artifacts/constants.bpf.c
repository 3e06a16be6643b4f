// SPDX-License-Identifier: GPL-2.0-only
// Constants of every kind that a tool's user space sets, and some that it cannot.
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, value) int (*name)[value]
#define __type(name, value) typeof(value) *name

enum kind { FIRST = 1, SECOND = 5 };

struct filter {
	unsigned int pid, uid;
	struct {
		unsigned int tid;
	} inner;
	unsigned int flag : 1;
};

const volatile unsigned int pid = 0;
const volatile long least = 0;
const volatile _Bool is_on = 0;
const volatile enum kind kind = FIRST;
const volatile char comm[8] = "";
const volatile unsigned short ports[4] = {};
const volatile struct filter filter = { .pid = 1 };
const int folded[2] = { 1, 2 };
unsigned long counted;

struct {
	__uint(type, 1);
	__type(key, unsigned int);
	__type(value, struct filter);
} seen SEC(".maps");

struct {
	__uint(type, 5);
	__uint(max_entries, 4);
	__uint(key_size, 4);
	__uint(value_size, 16);
} of_each_cpu SEC(".maps");

struct {
	__uint(type, 27);
	__uint(max_entries, 4096);
} ring SEC(".maps");

SEC("kprobe/vfs_read")
int program(int *context)
{
	counted += folded[*context & 1];
	return pid + least + is_on + kind + comm[1] + ports[1] + filter.pid;
}

char LICENSE[] SEC("license") = "GPL";
