// SPDX-License-Identifier: GPL-2.0-only
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
char LICENSE[] SEC("license") = "GPL";
SEC("kprobe/vfs_read")
int in(void *ctx) { return 0; }
SEC("kretprobe/vfs_read")
int out(void *ctx) { return 0; }
SEC("fexit/vfs_read")
int fout(void *ctx) { return 0; }
