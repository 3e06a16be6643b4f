#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Starts what is to run in an image: start-image START NETWORK LOGIN, as process 1, by the image's own shell.
# START: small, where the lab's agent is process 1, or own, where the image's /sbin/init is, if it has one. NETWORK: yes
# starts sshd.
# LOGIN: yes asks for a login on the console. The image's own init starts these by itself.
agent=/run/orchestrator/bin/agent
units=/run/systemd/system

# The guest is ready when systemd has started what it starts, and has nothing more to do.
let_systemd_start_the_agent() {
    mkdir -p "$units/multi-user.target.wants"
    cat >"$units/orchestrator-agent.service" <<EOF
[Unit]
Description=The lab's agent
After=multi-user.target
[Service]
Type=idle
ExecStart=$agent
KillMode=process
EOF
    ln -s ../orchestrator-agent.service "$units/multi-user.target.wants/"
}

cd / || exit 1
if [ "$1" = own ] && [ -x /sbin/init ]; then
    if [ -e /lib/systemd/systemd ]; then
        let_systemd_start_the_agent
        # Of a guest that is not reached by SSH, the lab's own images have no host key: sshd would fail again and again.
        if [ "$2" != yes ] && [ -e /etc/ssh/sshd_config.d/orchestrator.conf ]; then
            ln -s /dev/null "$units/ssh.service"
        fi
    else
        "$agent" &
    fi
    exec /sbin/init
fi
if [ "$2" = yes ]; then
    /usr/sbin/sshd &
fi
if [ "$3" = yes ]; then
    while :; do setsid /sbin/agetty -L ttyS0 115200 dumb || sleep 1; done &
fi
exec "$agent"
