#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command that sees one more mount than everyone else: with_mount.sh TYPE OPTIONS SOURCE TARGET COMMAND...
# To be started by unshare --map-root-user --mount.
set -e
mount -t "$1" -o "$2" "$3" "$4"
shift 4
exec "$@"
