#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs a command whose whole process group dies when its starter does.
# The starter makes this shell a group leader and has it sent SIGTERM at its own death (PR_SET_PDEATHSIG).
trap 'kill -KILL 0' TERM
"$@" &
wait $!
