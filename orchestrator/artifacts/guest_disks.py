# SPDX-License-Identifier: GPL-2.0-only
"""The disks a guest gets, whether its kernel can use them, and whether its channel gets in."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.data_disk import data_disk
from orchestrator.artifacts.images import ready_image
from orchestrator.artifacts.initramfs import disk_drivers
from orchestrator.artifacts.kernel_modules import kernel_modules
from orchestrator.artifacts.kernels import Kernel
from orchestrator.catalog.images import image as image_recipe
from orchestrator.catalog.kernels import Arch, KernelSpec
from orchestrator.catalog.user_disk import find_disk, is_user_disk
from orchestrator.errors import UsageError
from orchestrator.guest.machine import MODULES, ChannelKind, DataDisk, Login, RootImage, Start

_ROOT = ("CONFIG_VIRTIO_BLK", "CONFIG_EXT4_FS")
_DATA = ("CONFIG_VIRTIO_BLK", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4")
_NETWORK = ("CONFIG_VIRTIO_NET", "CONFIG_INET")
_SYSTEMD = ("CONFIG_CGROUPS", "CONFIG_FHANDLE", "CONFIG_INOTIFY_USER", "CONFIG_SIGNALFD", "CONFIG_TIMERFD")
"""What systemd's own README calls required, of what a kernel can be built without."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_MOST_DATA_DISKS = 16


@dataclass(frozen=True)
class GuestDisks:
    """The disks and the channel asked for: an image by name or path (see ``unsupported_reason``), folders of data.

    With ``kernel_modules`` the guest has all modules of its kernel, for modprobe.
    """

    image: str | None = None
    channel: ChannelKind = "framed"
    data: tuple[Path, ...] = ()
    kernel_modules: bool = False
    login: Login = field(default_factory=Login)


NOTHING = GuestDisks()
"""A guest that stays in its initramfs."""


@dataclass(frozen=True)
class Disks:
    """A guest's disks, ready, and what their kernel needs for them."""

    root: RootImage | None
    data: tuple[DataDisk, ...]
    drivers: Path | None


def image_arch(name: str) -> Arch | None:
    """The architecture of an image; None where only its programs know it. Raises ConfigError for no image."""
    if is_user_disk(name):
        find_disk(name)
        return None
    return image_recipe(name).arch


def unsupported_reason(wanted: GuestDisks, spec: KernelSpec) -> str | None:
    """Why a guest of this kernel cannot have what is wanted, as far as names show. Raises ConfigError."""
    if wanted.image is None:
        if wanted.channel != "framed":
            return f"channel '{wanted.channel}' needs an image: without one there is nothing to log in to"
        return None
    arch = image_arch(wanted.image)
    if arch is not None and arch != spec.arch:
        return f"image '{wanted.image}' is for {arch}, and kernel '{spec.name}' is for {spec.arch}"
    if is_user_disk(wanted.image) and wanted.channel == "ssh":
        return "a disk of your own has keys of its own, so its sshd cannot be identified: take framed or serial"
    return None


def ready_disks(context: BuildContext, kernel: Kernel, wanted: GuestDisks) -> Disks:
    """The disks, fetched and built where they are not there yet. Raises UsageError, HostError, BuildError."""
    sentence = unsupported_reason(wanted, kernel.spec)
    if sentence is not None:
        raise UsageError(sentence)
    if len(wanted.data) > _MOST_DATA_DISKS:
        raise UsageError(f"a guest can have {_MOST_DATA_DISKS} folders of data, not {len(wanted.data)}")
    root = None
    if wanted.image is not None:
        _check_kernel(kernel, _ROOT, "an image")
        root = _root(context, kernel, wanted.image)
        if wanted.channel == "ssh":
            _check_kernel(kernel, _NETWORK, "SSH")
    if wanted.data:
        _check_kernel(kernel, _DATA, "data disks")
    data = tuple(DataDisk(name, data_disk(context, folder)) for name, folder in _named(wanted.data).items())
    if wanted.kernel_modules:
        _check_kernel(kernel, _DATA, "its modules on a disk")
        name = f"modules of {kernel.release}"  # no folder of data is called so
        data += (DataDisk(name, kernel_modules(context, kernel), f"{MODULES}/{kernel.release}"),)
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
    """The folders by the names they have in the guest. Raises UsageError for a name twice, or an odd one."""
    named: dict[str, Path] = {}
    for folder in folders:
        name = folder.absolute().name
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{folder}: a data folder's name, which is its name in the guest, is made of letters, digits, '.', '_' "
                "and '-'",
                hint=f"name it by a link: ln -s {shlex.quote(str(folder.resolve()))} data",
            )
        if name in named:
            raise UsageError(f"two data folders are called {name}; in the guest each is /data/{name}")
        named[name] = folder
    return named


def _check_kernel(kernel: Kernel, options: Sequence[str], what: str, hint: str = "") -> None:
    lacking = [option for option in options if kernel.config.get(option, "n") not in ("y", "m")]
    # Of a kernel without a folder of drivers all has to be built in.
    if not kernel.modules.is_dir():
        lacking += [option for option in options if kernel.config.get(option) == "m"]
    if lacking and not hint and kernel.spec.tree is not None:
        options_of_script = " ".join(f"-e {option.removeprefix('CONFIG_')}" for option in lacking)
        hint = f"in {kernel.spec.tree}: scripts/config {options_of_script}, and build it again"
    if lacking:
        raise UsageError(f"kernel '{kernel.spec.name}' cannot have {what}: it lacks {', '.join(lacking)}", hint=hint)
