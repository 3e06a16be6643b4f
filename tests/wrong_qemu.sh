#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# A QEMU that takes each instruction for two nanoseconds once a file is there.
self=$(readlink -f "$0")
for folder in $(printf '%s' "$PATH" | tr ':' ' '); do
    real=$folder/qemu-system-x86_64
    [ -x "$real" ] && [ "$(readlink -f "$real")" != "$self" ] && break
done
if [ -e "SWITCH" ]; then
    count=$#
    for word; do
        case $word in shift=0,*) word=shift=1,${word#*,} ;; esac
        set -- "$@" "$word"
    done
    shift "$count"
fi
exec "$real" "$@"
