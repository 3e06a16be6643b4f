# SPDX-License-Identifier: GPL-2.0-only
"""The small root file system a guest starts from: busybox, the agent, the benchmarks, the channel's drivers.

A guest with disks gets a second archive behind it, which the kernel unpacks over the first: their drivers, and the
script by which it enters an image.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import guest_programs
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE, unpacked_packages
from orchestrator.artifacts.drivers import module_content, unpacked_name, with_dependencies
from orchestrator.artifacts.kernels import Kernel
from orchestrator.cpio import Entry, archive
from orchestrator.errors import HostError
from orchestrator.paths import data_dir

_FOLDERS = ("bin", "dev", "etc", "lib", "lib/modules", "proc", "root", "sys", "tmp")
_DRIVERS = ("virtio_pci", "virtio_console")
_DISK_DRIVERS = ("virtio_blk", "crc32c_generic", "ext4", "squashfs", "virtio_net")
"""ext4 asks for the checksum by a name that only modprobe could find."""

_DISK_SCRIPTS = {
    "image/enter.sh": "enter.sh",
    "bin/start-image": "start-image.sh",
    "bin/mount-data": "mount-data.sh",
}
_RENEWAL = "renew-guest.sh"
_APPLETS = Path(__file__).with_name("applets.txt")


def initramfs(context: BuildContext, kernel: Kernel) -> Path:
    """The guest's initramfs for ``kernel``, uncompressed: emulated CPUs are slow at decompressing."""
    arch = kernel.spec.arch
    busybox = unpacked_packages(context, f"busybox-{arch}", arch, lambda apt: _choose_busybox(apt, arch))
    programs = guest_programs(context, arch)
    inputs = {"kernel": kernel.key, "busybox": busybox.key, "programs": programs.key, "recipe": _recipe()}

    def build(folder: Path) -> None:
        drivers = with_dependencies(kernel.modules, _DRIVERS)
        shell = next((p for p in (busybox.path / "bin/busybox", busybox.path / "usr/bin/busybox") if p.is_file()), None)
        if shell is None:
            raise HostError(f"the busybox-static package of {arch} holds no busybox")
        entries = [
            *(Entry.folder(name) for name in _FOLDERS),
            Entry.character_device("dev/console", 5, 1),
            Entry.file("init", (programs.path / "init").read_bytes()),
            Entry.file("bin/busybox", shell.read_bytes()),
            *(Entry.link(f"bin/{name}", "busybox") for name in _applets()),
            Entry.link("bin/gtodbench", "callbench"),
            *(
                Entry.file(f"bin/{p.name}", p.read_bytes())
                for p in sorted(programs.path.iterdir())
                if p.suffix == "" and p.name != "init"
            ),
            Entry.file("bin/renew-guest", _renewal().encode()),
            *_drivers(drivers, "etc/modules"),
        ]
        (folder / "initramfs.cpio").write_bytes(archive(entries))

    artifact = context.cache.obtain("initramfs", inputs, f"initramfs of {kernel.spec.name}", build)
    return artifact.path / "initramfs.cpio"


def disk_drivers(context: BuildContext, kernel: Kernel) -> Path:
    """The second archive, of a guest of ``kernel`` with disks: their drivers, and the scripts that mount them."""
    folder = data_dir("images") / "guest"
    scripts = {place: (folder / name).read_bytes() for place, name in _DISK_SCRIPTS.items()}
    texts = {place: script.decode() for place, script in scripts.items()}
    inputs = {"kernel": kernel.key, "drivers": _DISK_DRIVERS, "scripts": texts, "packing": "xz"}

    def build(target: Path) -> None:
        first = with_dependencies(kernel.modules, _DRIVERS)
        drivers = [path for path in with_dependencies(kernel.modules, _DISK_DRIVERS) if path not in first]
        entries = [
            Entry.folder("image"),
            *_drivers(drivers, "image/modules"),
            *(Entry.file(place, script) for place, script in scripts.items()),
        ]
        (target / "disks.cpio").write_bytes(archive(entries))

    return context.cache.obtain("initramfs", inputs, f"disk drivers of {kernel.spec.name}", build).path / "disks.cpio"


def _drivers(files: Sequence[Path], listed: str) -> list[Entry]:
    """Drivers, and the list by which the guest's first program loads them."""
    return [
        *(Entry.file(f"lib/modules/{unpacked_name(path)}", module_content(path), 0o644) for path in files),
        Entry.file(listed, "".join(f"/lib/modules/{unpacked_name(path)}\n" for path in files).encode(), 0o644),
    ]


def _choose_busybox(apt: AptRoot, arch: str) -> list[Package]:
    return [apt.show("busybox-static", DEBIAN_ARCHITECTURE[arch])]


def _applets() -> list[str]:
    return _APPLETS.read_text().split()


def _recipe() -> object:
    return [_FOLDERS, _DRIVERS, _applets(), _renewal()]


def _renewal() -> str:
    """The script that makes a restored guest one of its own."""
    return (data_dir("images") / "guest" / _RENEWAL).read_text()
