#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a QEMU that dies at once, as with a library that does not fit.
echo "undefined symbol: spice_server_new" >&2
kill -SEGV $$
