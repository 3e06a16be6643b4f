#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Says which program a tool's name stands for: find-tool NAME. Debian calls those of bcc NAME-libbpf and NAME-bpfcc.
for name in "$1" "$1-libbpf" "$1-bpfcc" "$1.bt"; do
    if command -v "$name"; then
        exit 0
    fi
done
exit 1
