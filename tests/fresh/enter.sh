#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Runs a command with another folder as its root file system:
#
#   enter.sh ROOT FOLDER [SOURCE TARGET ro|rw]... -- COMMAND...
#
# ROOT    an unpacked system, which has umount and setpriv
# FOLDER  where the command starts, as seen from inside
# SOURCE  a file or folder of the host, seen inside at TARGET, which is there already
#
# To be started as root, or as one of a user namespace, with mounts and processes of its own (unshare --mount --pid
# --fork --kill-child): all that is mounted and started here then ends with this shell.
#
# Not chroot: a process in a chroot gets no user namespace, and the lab builds images in one.

set -eu

root=$1 folder=$2
shift 2
# The PATH of a user who is not root may lack the folders of root's programs.
command -v pivot_root >/dev/null || PATH=$PATH:/usr/sbin:/sbin
umask 022

mount --bind "$root" "$root" # pivot_root takes nothing but a mount point
while [ "$1" != -- ]; do
    mount --bind "$1" "$root$2"
    [ "$3" = rw ] || mount -o remount,bind,ro "$root$2"
    shift 3
done
shift

mount -t proc -o nosuid,nodev,noexec proc "$root/proc"
# In a user namespace /sys can only be mounted anew together with a network of one's own; nothing there is writable then.
mount -t sysfs -o ro,nosuid,nodev,noexec sysfs "$root/sys" 2>/dev/null || mount --rbind /sys "$root/sys"
mount -t tmpfs -o mode=755,nosuid tmpfs "$root/dev"
for name in full kvm null random tty urandom zero; do
    [ -e "/dev/$name" ] || continue
    : >"$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done
mkdir "$root/dev/pts" "$root/dev/shm"
mount -t devpts -o newinstance,nosuid,noexec,ptmxmode=666,mode=620,gid=5 devpts "$root/dev/pts"
mount -t tmpfs -o mode=1777,nosuid,nodev tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
ln -s fd/0 "$root/dev/stdin"
ln -s fd/1 "$root/dev/stdout"
ln -s fd/2 "$root/dev/stderr"

cd "$root"
# The host's root comes to lie upon the new one, and is taken off.
pivot_root . .
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export PATH
umount -l .
cd "$folder"

# Not exec: this shell is process 1 in there and reaps what others leave behind.
"$@"
