#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A tool of the compiler whose packages are unpacked in ../packages, called by the name of this file.
# Its libraries are beside it, and gcc is to find that assembler and not the host's.
here=${0%/*}
LD_LIBRARY_PATH=$here/../packages/usr/lib/x86_64-linux-gnu COMPILER_PATH=$here \
    exec "$here/../packages/usr/bin/x86_64-linux-gnu-${0##*/}" "$@"
