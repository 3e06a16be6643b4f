#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command whose whole process group dies when its starter does, prints its process number, and ends as it does.
# The starter has this shell sent SIGTERM at its own death (PR_SET_PDEATHSIG). A command that becomes another user loses
# such a signal of its own (commit_creds() of the kernel clears it); this shell stays who it is.
trap 'kill -KILL 0' TERM
"$@" >/dev/null &
echo $!
exec >/dev/null
wait $!
status=$?
trap - TERM
# An exit status may be above 128 too, without a signal of that number.
[ "$status" -gt 128 ] && name=$(kill -l "$status" 2>/dev/null) && kill -s "$name" $$
exit "$status"
