#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that is too old.
echo "QEMU emulator version 6.2.0 (Debian 1:6.2+dfsg-2)"
