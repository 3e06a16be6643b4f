#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Asks the sshd of an image, with an identity as a guest gets it, what its settings come to; fails if it complains.
#
#   sshd_settings.sh RAW_IMAGE EMPTY_FOLDER
#
# Runs as root, or as one in a user namespace of its own.

set -eu

tree=$2
command -v debugfs >/dev/null || PATH=$PATH:/usr/sbin:/sbin
debugfs -R "rdump / $tree" "$1" 2>/dev/null
: >"$tree/dev/null"
mkdir -p "$tree/run/sshd" "$tree/run/orchestrator/identity"
chroot "$tree" /usr/bin/ssh-keygen -q -t ed25519 -N '' -f /run/orchestrator/identity/host_key
chroot "$tree" /usr/sbin/sshd -t
chroot "$tree" /usr/sbin/sshd -T
