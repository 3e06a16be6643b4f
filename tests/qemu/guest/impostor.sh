#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Takes the agent's place and sends the host something that is no frame.
until port=$(ls /dev/vport* 2>/dev/null) && [ -n "$port" ]; do
    sleep 0.05
done
exec 3>"$port"
printf 'hello, this is no agent' >&3
while :; do
    sleep 1000
done
