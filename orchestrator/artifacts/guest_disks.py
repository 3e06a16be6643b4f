# SPDX-License-Identifier: GPL-2.0-only
"""What a guest has on disks: an image or a user's disk, folders of data, the modules of its kernel."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.data_disk import data_disk
from orchestrator.artifacts.disk_images import ready_image
from orchestrator.artifacts.headers_disk import kernel_headers
from orchestrator.artifacts.initramfs import disk_drivers
from orchestrator.artifacts.modules_disk import kernel_modules
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.kernels import KernelSpec, setting_options
from orchestrator.catalog.user_disks import find_disk, is_user_disk
from orchestrator.errors import UsageError
from orchestrator.guest.machine import HEADERS, MODULES, ChannelKind, DataDisk, RootImage, Start

_DATA = ("CONFIG_VIRTIO_BLK", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4")
_SYSTEMD = ("CONFIG_CGROUPS", "CONFIG_FHANDLE", "CONFIG_INOTIFY_USER", "CONFIG_SIGNALFD", "CONFIG_TIMERFD")
"""The options that systemd's README requires and that a kernel can be built without."""

_MOST_DATA_DISKS = 16

_COMPILING = ("bpftrace", "python3-bpfcc")
"""Packages whose programs compile against the headers of the guest's kernel."""


class Disks(NamedTuple):
    """A machine's disks, and the archive of drivers that the kernel needs for them."""

    root: RootImage | None
    data: tuple[DataDisk, ...]
    disk_drivers: Path | None


def image_arch(name: str) -> Arch | None:
    """The architecture of an image; None for a user's disk, which does not state it. Raises ConfigError."""
    if is_user_disk(name):
        find_disk(name)
        return None
    return image_recipe(name).arch


def unsupported_reason(spec: KernelSpec, image: str | None, channel: ChannelKind) -> str | None:
    """Why a guest of this kernel cannot have this image and channel, as far as names show. Raises ConfigError."""
    if image is None:
        if channel != "framed":
            return f"channel '{channel}' needs an image: without one there is nothing to log in to"
        return None
    arch = image_arch(image)
    if arch is not None and arch != spec.arch:
        return f"image '{image}' is for {arch}, and kernel '{spec.name}' is for {spec.arch}"
    if is_user_disk(image) and channel == "ssh":
        return "the lab does not know the SSH host key of a disk of your own: use framed or serial"
    return None


class GuestDisks(Protocol):
    """What a guest is to have on disks: an image by its name or path, folders of data, the kernel's own modules."""

    @property
    def image(self) -> str | None: ...
    @property
    def channel(self) -> ChannelKind: ...
    @property
    def data(self) -> Sequence[Path]: ...
    @property
    def kernel_modules(self) -> bool: ...


def ready_disks(context: BuildContext, kernel: Kernel, guest: GuestDisks) -> Disks:
    """Fetch and build the disks as needed. Raises UsageError, HostError, BuildError."""
    sentence = unsupported_reason(kernel.spec, guest.image, guest.channel)
    if sentence is not None:
        raise UsageError(sentence)
    if len(guest.data) > _MOST_DATA_DISKS:
        raise UsageError(f"a guest can have {_MOST_DATA_DISKS} folders of data, not {len(guest.data)}")
    root = None
    if guest.image is not None:
        _check_kernel(kernel, ("CONFIG_VIRTIO_BLK", "CONFIG_EXT4_FS"), "an image")
        root = _root(context, kernel, guest.image)
        if guest.channel == "ssh":
            _check_kernel(kernel, ("CONFIG_VIRTIO_NET", "CONFIG_INET"), "SSH")
    if guest.data:
        _check_kernel(kernel, _DATA, "data disks")
    data = tuple(DataDisk(name, data_disk(context, folder)) for name, folder in _named(guest.data).items())
    if guest.kernel_modules:
        _check_kernel(kernel, _DATA, "its modules on a disk")
        name = f"modules of {kernel.release}"  # a data folder's name has no spaces
        data += (DataDisk(name, kernel_modules(context, kernel), f"{MODULES}/{kernel.release}"),)
    if root is not None and any(name in _COMPILING for name, _ in root.packages) and kernel.headers.is_dir():
        data += (DataDisk(f"headers of {kernel.release}", kernel_headers(context, kernel), HEADERS),)
    drivers = disk_drivers(context, kernel) if root is not None or data else None
    return Disks(root, data, drivers)


def _root(context: BuildContext, kernel: Kernel, name: str) -> RootImage:
    if is_user_disk(name):
        disk = find_disk(name)
        return RootImage(disk.name, disk.key, disk.file, disk.format, "own", is_users=True)
    recipe = image_recipe(name)
    if recipe.init == "systemd":
        _check_kernel(kernel, _SYSTEMD, "systemd", hint="Debian's kernels have it")
    built = ready_image(context, recipe)
    start: Start = "own" if recipe.init == "systemd" else "small"
    packages = tuple(sorted(built.packages.items()))
    return RootImage(recipe.name, built.key, built.base, "qcow2", start, packages)


def _named(folders: Sequence[Path]) -> dict[str, Path]:
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.absolute().name
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
            what = "a data folder's name, also its name in the guest, may have only letters, digits, '.', '_' and '-'"
            hint = f"use a link: ln -s {shlex.quote(str(folder.resolve()))} data"
            raise UsageError(f"{folder}: {what}", hint=hint)
        if name in named:
            raise UsageError(f"two data folders are called {name}; in the guest both would be /data/{name}")
        named[name] = folder
    return named


def _check_kernel(kernel: Kernel, options: Sequence[str], what: str, hint: str = "") -> None:
    lacking = [option for option in options if kernel.config.get(option, "n") not in ("y", "m")]
    # Without a folder of drivers, the kernel must have everything built in.
    if not kernel.modules.is_dir():
        lacking += [option for option in options if kernel.config.get(option) == "m"]
    if lacking and not hint and kernel.spec.tree is not None:
        hint = setting_options(kernel.spec.tree, lacking)
    if lacking:
        raise UsageError(
            f"kernel '{kernel.spec.name}' does not support {what}: it lacks {', '.join(lacking)}", hint=hint
        )
