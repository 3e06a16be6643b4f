#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Becomes a command, unless its starter has ended already: then the signal of that end (PR_SET_PDEATHSIG) was asked for
# too late, and never comes. The first argument is the starter's process number.
[ "$PPID" = "$1" ] || exit 1
shift
exec "$@"
