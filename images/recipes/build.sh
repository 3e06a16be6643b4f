#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Makes an image's file system of the packages in a local archive, and of nothing else.
#
#   build.sh ARCHIVE WORK RESULT ARCHITECTURE INIT BYTES
#
# ARCHIVE  packages and their index, all of which are installed
# WORK     an empty folder, where the tree stands meanwhile; its path has no spaces
# RESULT   gets base.raw (ext4), root.squashfs (the same, for guests that have it in memory), packages.txt (names and
#          versions) and files.txt (what is in the tree)
#
# Runs as root, or as one in a user namespace of its own. Needs SOURCE_DATE_EPOCH.

set -eu

archive=$1 work=$2 result=$3 architecture=$4 init=$5 size=$6
here=${0%/*}
tree=$work/tree
# The PATH of a user who is not root may lack the folders of root's programs.
command -v mke2fs >/dev/null || PATH=$PATH:/usr/sbin:/sbin
export PATH LC_ALL=C TMPDIR="$work"
umask 022

# apt's sources know no spaces, and the archive's own path may have some.
ln -s "$archive" "$work/archive"
names=$(sed -n 's/^Package: //p' "$archive/Packages" | paste -sd ,)

# No matter if the host crashes meanwhile: only a whole tree is of use, so nothing waits for the disk.
mmdebstrap --mode=root --variant=essential --architectures="$architecture" --include="$names" \
    --aptopt='APT::Install-Recommends "false"' \
    --dpkgopt=force-unsafe-io \
    --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/info/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/man/*' \
    '' "$tree" "deb [trusted=yes] copy:$work/archive ./"

sh "$here/finish.sh" "$tree" "$init"

# What was made just now, and not in its package, would be of another time in each build.
find "$tree" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +

dpkg-query --admindir="$tree/var/lib/dpkg" --show --showformat='${Package} ${Version}\n' >"$result/packages.txt"
(
    cd "$tree"
    find . \( -type f -printf '%y %m %U:%G %s %p\n' \) -o -printf '%y %m %U:%G %p %l\n' | sort
    find . -type f -exec sha256sum {} + | sort -k 2
) >"$result/files.txt"

# No journal and no checksums: an image is never written to, and a guest's overlay goes with the guest.
truncate --size="$size" "$result/base.raw"
mke2fs -q -t ext4 -d "$tree" -m 0 -L debian -U 5eed1234-0713-2005-8000-000000000001 \
    -E hash_seed=5eed1234-0713-2005-8000-000000000002,root_owner=0:0 -O '^has_journal,^metadata_csum' \
    "$result/base.raw"

# lz4: an emulated CPU is slow at anything denser. It takes the time of what it makes from SOURCE_DATE_EPOCH.
mksquashfs "$tree" "$result/root.squashfs" -comp lz4 -noappend -no-progress -quiet -no-xattrs
rm -rf --one-file-system "$tree"
