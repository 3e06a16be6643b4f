#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes a restored guest one of its own: renew-guest FOLDER [SECONDS]. FOLDER holds what the host has written for it: a
# seed, and for a guest in an image a name, a machine-id and keys. SECONDS is the wall clock, since 1970.
[ -z "$2" ] || date -u -s "@$2" >/dev/null || exit
if [ -e "$1/seed" ]; then
    seedrandom "$1/seed" || exit
    rm -f "$1/seed"
fi
[ -e "$1/hostname" ] || exit 0
hostname "$(cat "$1/hostname")" && cat "$1/hostname" >/etc/hostname && cat "$1/machine-id" >/etc/machine-id || exit
# sshd reads the host's key when it starts, and starts itself anew.
[ ! -e /run/sshd.pid ] || kill -HUP "$(cat /run/sshd.pid)"
