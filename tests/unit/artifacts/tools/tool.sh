#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Stands for a tool of a compiler: prints how it was called.
case $1 in
    --version) echo "${0##*/} (Debian 12.2.0-14) 12.2.0" ;;
    -dumpfullversion) echo 12.2.0 ;;
    *) printf '%s\n' "${0##*/}" "$LD_LIBRARY_PATH" "$COMPILER_PATH" "$@" ;;
esac
