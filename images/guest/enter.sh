#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Makes the image on the disk "root" the guest's root, as process 1, and goes on with start-image.sh in there. Runs in
# the initramfs, on busybox. /image/settings, which the host wrote, says what is wanted there: start, network, login.
# /image/identity holds what is this guest's alone.
. /image/settings
export PATH=/bin
root=/image/root

give_up() {
    echo "enter: $*" >/dev/console
    busybox reboot -f
}

# The whole disk, or the first partition that holds a system.
mount_root() {
    for serial in /sys/block/vd*/serial; do
        [ "$(cat "$serial" 2>/dev/null)" = root ] || continue
        disk=${serial%/serial}
        disk=${disk##*/}
        for device in "/dev/$disk" /dev/"$disk"[0-9]*; do
            mount -t ext4 -o noatime "$device" "$root" 2>/dev/null || continue
            [ -e "$root/bin/sh" ] || [ -L "$root/bin/sh" ] && return 0
            umount "$root"
        done
        give_up "no ext4 file system on the image's disk holds a system (bin/sh)"
    done
    give_up "the image's disk is not there: the kernel found no virtio disk"
}

start_network() {
    ip link set lo up
    [ "$network" = yes ] || return
    # The addresses are those that QEMU's user-mode network has.
    ip addr add 10.0.2.15/24 dev eth0 && ip link set eth0 up || give_up "the guest has no network device eth0"
}

mkdir -p "$root"
mount_root
mkdir -p "$root/dev" "$root/proc" "$root/sys" "$root/run" "$root/tmp"
seedrandom /image/identity/seed
start_network
hostname "$(cat /image/identity/hostname)"
cat /image/identity/hostname >"$root/etc/hostname"
cat /image/identity/machine-id >"$root/etc/machine-id"

mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir -p "$root/run/orchestrator/bin" "$root/run/sshd" "$root/run/lock"
mount -o bind /bin "$root/run/orchestrator/bin"
cp -a /image/identity "$root/run/orchestrator/identity"
mkdir -p /dev/pts /dev/shm
mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
for place in dev proc sys; do mount -o move "/$place" "$root/$place"; done
# This shell goes on seeing the initramfs; what it starts by chroot sees the image.
cd "$root" && mount -o move . / || give_up "cannot make the image the root"

chroot . /bin/sh -c : || give_up "this kernel runs no program of the image: one of 64 bits takes a kernel of 64 bits"
exec chroot . /run/orchestrator/bin/start-image "$start" "$network" "$login"
