#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that was built without libseccomp (CONFIG_SECCOMP of softmmu/vl.c).
[ "$1" != --version ] || exec echo "QEMU emulator version 7.2.0"
echo "qemu-system-x86_64: -sandbox on: -sandbox support is not enabled in this QEMU binary" >&2
exit 1
