#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# The program of this name, with the libc of its release, which may be newer than the host's.
here=$(readlink -f "$0")
libraries=${here%%/usr/lib/linux-kbuild-*}/usr/lib/x86_64-linux-gnu
exec "$libraries/ld-linux-x86-64.so.2" --argv0 "$0" --library-path "$libraries" "$here.own" "$@"
