#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# For each address of /tmp/places: the kernel's listing (a kprobe at an endbr moves behind it) and the answer of the
# module whose folder of parameters is given.
while read -r address; do
    echo "$address" >"$1/place"
    flags=$(sed -n "s/^0*$address [^[]*/listed /p" /sys/kernel/debug/kprobes/list)
    echo "$address;$flags;$(cat "$1/place")"
done </tmp/places
