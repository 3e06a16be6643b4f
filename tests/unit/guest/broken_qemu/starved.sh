#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that is not allowed as much memory as it asks for.
[ "$1" != --version ] || exec echo "QEMU emulator version 7.2.0"
echo "qemu-system-x86_64: allocate 1073741824 bytes for jit buffer: Cannot allocate memory" >&2
exit 1
