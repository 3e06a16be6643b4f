# SPDX-License-Identifier: GPL-2.0-only
"""The files that a guest boots from besides its kernel: the initramfs, its disks, a disk with the kernel's modules.

For a guest with disks, a second archive follows the initramfs: the disks' drivers, and the script that enters the
image. The kernel unpacks it over the first.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.compiler import guest_programs
from orchestrator.artifacts.data_disk import data_disk
from orchestrator.artifacts.debian_package import Package
from orchestrator.artifacts.disk_images import ready_image
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_files import (
    BUILT_IN,
    lists_folder,
    module_content,
    module_files,
    unpacked_name,
    with_dependencies,
)
from orchestrator.artifacts.squashfs import OPTIONS, pack
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.kernels import KernelSpec, setting_options
from orchestrator.catalog.user_disks import find_disk, is_user_disk
from orchestrator.errors import BuildError, HostError, UsageError
from orchestrator.files import Entry, archive, sha256_of, write_archive
from orchestrator.guest.machine import MODULES, ChannelKind, DataDisk, RootImage, Start
from orchestrator.host_packages import check_installed
from orchestrator.paths import data_dir
from orchestrator.process import run
from orchestrator.steps import step

_FOLDERS = ("bin", "dev", "etc", "lib", "lib/modules", "proc", "root", "sys", "tmp")
_DRIVERS = ("virtio_pci", "virtio_console")
_DISK_DRIVERS = ("virtio_blk", "crc32c_generic", "ext4", "squashfs", "virtio_net")
"""ext4 requests its checksum driver by an alias that only modprobe can resolve."""

_DISK_SCRIPTS = {"image/enter.sh": "enter.sh", "bin/start-image": "start-image.sh", "bin/mount-data": "mount-data.sh"}
_APPLETS = Path(__file__).with_name("applets.txt")


def initramfs(context: BuildContext, kernel: Kernel) -> Path:
    """The uncompressed initramfs for guests of ``kernel``. Uncompressed, as emulated CPUs are slow at decompressing."""
    arch = kernel.spec.arch

    def choose(apt: AptRoot) -> list[Package]:
        return [apt.show("busybox-static", ARCHITECTURES[arch].debian)]

    busybox, programs = unpacked_packages(context, f"busybox-{arch}", arch, choose), guest_programs(context, arch)
    # Gives a restored guest its own identity.
    applets, renewal = _APPLETS.read_text().split(), (data_dir("images") / "guest/renew-guest.sh").read_text()
    recipe = [_FOLDERS, _DRIVERS, applets, renewal]
    inputs = {"kernel": kernel.key, "busybox": busybox.key, "programs": programs.key, "recipe": recipe}

    def build(file: Path) -> None:
        drivers = with_dependencies(kernel.modules, _DRIVERS)
        shell = next((p for p in (busybox.path / "bin/busybox", busybox.path / "usr/bin/busybox") if p.is_file()), None)
        if shell is None:
            raise HostError(f"the busybox-static package of {arch} holds no busybox")
        entries = [
            *(Entry.folder(name) for name in _FOLDERS),
            Entry.character_device("dev/console", 5, 1),
            Entry.file("init", (programs.path / "init").read_bytes()),
            Entry.file("bin/busybox", shell.read_bytes()),
            *(Entry.link(f"bin/{name}", "busybox") for name in applets),
            Entry.link("bin/gtodbench", "callbench"),
            *(
                Entry.file(f"bin/{p.name}", p.read_bytes())
                for p in sorted(programs.path.iterdir())
                if p.suffix == "" and p.name != "init"
            ),
            Entry.file("bin/renew-guest", renewal.encode()),
            *_drivers(drivers, "etc/modules"),
        ]
        file.write_bytes(archive(entries))

    return context.cache.obtain_file("initramfs", inputs, f"initramfs of {kernel.spec.name}", "initramfs.cpio", build)


def disk_drivers(context: BuildContext, kernel: Kernel) -> Path:
    """The second archive, for guests of ``kernel`` with disks: the disks' drivers and the scripts that mount them."""
    folder = data_dir("images") / "guest"
    scripts = {place: (folder / name).read_text() for place, name in _DISK_SCRIPTS.items()}
    inputs = {"kernel": kernel.key, "drivers": _DISK_DRIVERS, "scripts": scripts, "packing": "xz"}

    def build(file: Path) -> None:
        first = with_dependencies(kernel.modules, _DRIVERS)
        drivers = [path for path in with_dependencies(kernel.modules, _DISK_DRIVERS) if path not in first]
        entries = [
            Entry.folder("image"),
            *_drivers(drivers, "image/modules"),
            *(Entry.file(place, script.encode()) for place, script in scripts.items()),
        ]
        file.write_bytes(archive(entries))

    return context.cache.obtain_file("initramfs", inputs, f"disk drivers of {kernel.spec.name}", "disks.cpio", build)


def _drivers(files: Sequence[Path], listed: str) -> list[Entry]:
    return [
        *(Entry.file(f"lib/modules/{unpacked_name(path)}", module_content(path), 0o644) for path in files),
        Entry.file(listed, "".join(f"/lib/modules/{unpacked_name(path)}\n" for path in files).encode(), 0o644),
    ]


# An initramfs with unattended work: the guest runs it before the host sends anything.
#
# Input from the host arrives at an instant that the guest's clock does not determine. Unattended work receives none, so
# on the exact clock two guests with the same work agree in every instruction, timer ticks included.

FOLDER = "/sealed"
"""A path in the guest. It affects the counts: another name changes the totals in their fifth digit."""
OUTPUT = f"{FOLDER}/output"
"""In the guest: the output of the work, and its wait status, as init.c writes them."""
STATUS = f"{FOLDER}/status"

STEPS = "steps.sh"
"""The file that every script of unattended work includes."""


def progress(line: str) -> str | None:
    """The progress report in a console line, without the kernel's time stamp; None for any other line."""
    _, mark, words = line.partition("lab: ")
    return words if mark else None


def write_work(
    target: BinaryIO, initramfs: Path, script: str, settings: Mapping[str, int | str], files: Mapping[str, bytes | Path]
) -> None:
    """Write ``initramfs``, followed by an archive in ``/sealed`` of ``images/unattended/SCRIPT.sh`` and ``files``.

    ``settings`` are the script's shell variables. ``files`` may be large: those on the host's disk are streamed.
    """
    scripts = unattended_scripts()
    text = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    folder = FOLDER.removeprefix("/")
    content: Mapping[str, bytes | Path] = {
        "work.sh": scripts / f"{script}.sh",
        STEPS: scripts / STEPS,
        "settings": text.encode(),
        **files,
    }
    with step(f"write an initramfs with the work {script}"):
        with initramfs.open("rb") as file:
            shutil.copyfileobj(file, target)
        # The kernel unpacks concatenated archives in turn.
        entries = [Entry.folder(folder), *(Entry.file(f"{folder}/{name}", data) for name, data in content.items())]
        write_archive(target, entries)


def unattended_scripts() -> Path:
    """The folder with the scripts of unattended work."""
    return data_dir("images") / "unattended"


_DEPMOD = "/usr/sbin/depmod"
_PACKED_MODULES = "kernel-modules"


def kernel_modules(context: BuildContext, kernel: Kernel) -> Path:
    """A squashfs of a kernel's modules with depmod's index. Raises UsageError if it has none, BuildError."""
    folder, files = lists_folder(kernel), module_files(kernel)
    lists = [folder / name for name in ("modules.order", BUILT_IN, f"{BUILT_IN}.modinfo") if (folder / name).is_file()]
    if not files:
        hint = "leave out --kernel-modules (in a test's mark: kernel_modules), or use a Debian kernel"
        raise UsageError(f"kernel '{kernel.spec.name}' has no modules: everything is built in", hint=hint)
    content = _digests(kernel)

    def build(squashfs: Path) -> None:
        for name in ("image-packages.txt", "module-packages.txt"):
            check_installed(name, "a guest with its kernel's own modules")
        context.say(f"packing the modules of {kernel.spec.name}")
        base = squashfs.with_name("base")
        tree = base / "lib/modules" / kernel.release
        for name, file in files.items():
            copy = tree / "kernel" / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)
            if content.get(name, digest := sha256_of(copy)) != digest:
                raise BuildError(f"module {name} has changed while the modules were packed", hint="run it again")
        for file in lists:
            shutil.copyfile(file, tree / file.name)
        what = f"the modules of {kernel.spec.name}"
        depmod = run([_DEPMOD, "-b", str(base), kernel.release], time_limit=1800)
        depmod.or_raise(BuildError, f"{what} cannot be packed")
        pack(tree, squashfs, what)
        shutil.rmtree(base)

    inputs = {"kernel": kernel.key, "content": content, "options": list(OPTIONS)}
    label = f"modules of {kernel.spec.name}"
    return context.cache.obtain_file(_PACKED_MODULES, inputs, label, "modules.squashfs", build)


def are_as_packed(cache: Cache, disks: Iterable[DataDisk], kernel: Kernel) -> bool:
    """Whether a kernel's modules are still the files that one of these disks has; True without such a disk."""
    packed = (cache.artifact(disk.file.parent) for disk in disks)
    of_modules = [artifact.inputs for artifact in packed if artifact is not None and artifact.kind == _PACKED_MODULES]
    return all(inputs["content"] == _digests(kernel) for inputs in of_modules)


def _digests(kernel: Kernel) -> dict[str, str]:
    """The SHA-256 of each module in a user's tree, which may be rebuilt without its kernel; empty for packages."""
    return {} if kernel.packages else {name: sha256_of(file) for name, file in module_files(kernel).items()}


_DATA = ("CONFIG_VIRTIO_BLK", "CONFIG_SQUASHFS", "CONFIG_SQUASHFS_LZ4")
_SYSTEMD = ("CONFIG_CGROUPS", "CONFIG_FHANDLE", "CONFIG_INOTIFY_USER", "CONFIG_SIGNALFD", "CONFIG_TIMERFD")
"""The options that systemd's README requires and that a kernel can be built without."""

_MOST_DATA_DISKS = 16


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
