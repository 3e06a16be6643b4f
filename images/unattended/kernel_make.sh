# SPDX-License-Identifier: GPL-2.0-only
# For the scripts beside: the kernel's source at /mnt/linux and its build at /mnt/build, as the system has them.
build=$system/mnt/build

enter_source() {
	mkdir $system/mnt/linux $build
	mount -t squashfs -o ro,loop /sealed/source.squashfs $system/mnt/linux || give_up "cannot mount the source"
}

# What a kernel says of its own build is the same each time.
kernel_make() {
	measured $system make -s -j "$(nproc)" -C /mnt/linux O=/mnt/build ARCH="$arch" \
		KBUILD_BUILD_TIMESTAMP='Wed Jul 13 00:00:00 UTC 2005' KBUILD_BUILD_USER=lab KBUILD_BUILD_HOST=lab \
		KBUILD_BUILD_VERSION=1 "$@"
}
