#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that lacks an option.
[ "$1" != --version ] || exec echo "QEMU emulator version 7.2.0"
echo "qemu-system-x86_64: -sandbox: invalid option" >&2
exit 1
