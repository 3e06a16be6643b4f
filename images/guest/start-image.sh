#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Starts what is to run in an image: start-image START NETWORK LOGIN, as process 1, by the image's own shell.
# START: small, where the lab's agent is process 1, or own, where the image's /sbin/init is. NETWORK: yes starts sshd.
# LOGIN: yes asks for a login on the console. The image's own init starts these by itself.
agent=/run/orchestrator/bin/agent
cd / || exit 1
if [ "$1" = own ]; then
    "$agent" &
    exec /sbin/init
fi
if [ "$2" = yes ]; then
    /usr/sbin/sshd &
fi
if [ "$3" = yes ]; then
    while :; do setsid /sbin/agetty -L ttyS0 115200 dumb; done &
fi
exec "$agent"
