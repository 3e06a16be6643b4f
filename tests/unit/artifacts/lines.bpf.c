// SPDX-License-Identifier: GPL-2.0-only
// Two programs in one section, without headers of the kernel's.
#define SEC(name) __attribute__((section(name), used))

int reads;

SEC("fentry/vfs_read")
int first(unsigned long *context)
{
	if (context[0] > 5)
		return 0;
	reads += 1;
	return 0;
}

SEC("fentry/vfs_read")
int second(unsigned long *context)
{
	reads = context[1];
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
