#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that says its version and dies when it is to make a machine.
[ "$1" != --version ] || exec echo "QEMU emulator version 7.2.0"
echo "an assertion failed" >&2
kill -SEGV $$
