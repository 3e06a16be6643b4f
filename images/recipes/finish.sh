#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Makes an image of a freshly installed Debian: one that is the same each time, belongs to no machine, lets its user
# in, and starts quickly.
#
#   finish.sh TREE small|systemd

set -eu

tree=$1 init=$2
here=${0%/*}

# --- who it is, and who may come in ---------------------------------------------------------------

rm -f "$tree"/etc/ssh/ssh_host_*
install -m 644 "$here/sshd.conf" "$tree/etc/ssh/sshd_config.d/orchestrator.conf"
# The first word on a matter counts for sshd, but of these it takes no second one, or adds it to the first.
sed -i -E 's/^(AcceptEnv|Subsystem|X11Forwarding)\b/#&/' "$tree/etc/ssh/sshd_config"

# On the console, root needs no password; sshd takes none at all.
sed -i 's/^root:[^:]*:/root::/' "$tree/etc/shadow"

: >"$tree/etc/machine-id"
if [ -e "$tree/var/lib/dbus" ]; then
    ln -sf /etc/machine-id "$tree/var/lib/dbus/machine-id"
fi
echo lab >"$tree/etc/hostname"
printf '127.0.0.1\tlocalhost\n127.0.1.1\tlab\n::1\tlocalhost\n' >"$tree/etc/hosts"
: >"$tree/etc/resolv.conf"
chmod 644 "$tree/etc/machine-id" "$tree/etc/hostname" "$tree/etc/hosts" "$tree/etc/resolv.conf"
: >"$tree/etc/motd"
rm -rf "$tree"/etc/update-motd.d/*
# login reads it, and complains where there is none.
: >"$tree/etc/default/locale"

# --- what starts ----------------------------------------------------------------------------------

# The host's PATH says nothing about the tree.
systemctl_in_tree() {
    chroot "$tree" /usr/bin/env PATH=/usr/sbin:/usr/bin:/sbin:/bin systemctl --quiet "$@"
}

if [ "$init" = systemd ]; then
    # Without a folder of its own on the disk, the journal stays in memory.
    rm -rf "$tree/var/log/journal"
    systemctl_in_tree set-default multi-user.target
    systemctl_in_tree enable ssh.service
    # Who asks for a login on the serial console is started by the kernel's parameter console=, unless told not to.
    systemctl_in_tree disable serial-getty@ttyS0.service
    # There is no screen to log in at, and nobody to fetch packages, trim disks or keep copies for.
    systemctl_in_tree mask getty@tty1.service getty-static.service apt-daily.timer apt-daily-upgrade.timer \
        dpkg-db-backup.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer systemd-networkd-wait-online.service
fi

# --- what is not needed, or is never twice the same -----------------------------------------------

rm -rf "$tree"/usr/share/doc/* "$tree"/usr/share/info/* "$tree"/usr/share/locale/* "$tree"/usr/share/man/* \
    "$tree"/usr/share/lintian "$tree"/var/lib/apt/lists/* "$tree"/var/cache/apt/* "$tree"/var/cache/debconf/*-old \
    "$tree"/var/cache/ldconfig/aux-cache "$tree"/var/lib/dpkg/*-old "$tree"/var/lib/apt/extended_states \
    "$tree"/etc/passwd- "$tree"/etc/group- "$tree"/etc/shadow- "$tree"/etc/gshadow- "$tree"/etc/.pwd.lock \
    "$tree"/etc/apt/apt.conf.d/99mmdebstrap
echo '# Where this image came from is not where its packages are.' >"$tree/etc/apt/sources.list"
find "$tree/var/log" -type f -size +0 -exec truncate --size=0 {} +

# These are mounted over at each start.
for folder in dev proc run sys tmp; do
    find "$tree/$folder" -xdev -mindepth 1 -delete
done
