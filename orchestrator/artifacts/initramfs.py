# SPDX-License-Identifier: GPL-2.0-only
"""The initramfs that a guest starts from.

For a guest with disks, a second archive follows it: the disks' drivers, and the script that enters the image. The
kernel unpacks it over the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.debian_package import Package
from orchestrator.artifacts.guest_programs import guest_programs
from orchestrator.artifacts.module_files import module_content, unpacked_name, with_dependencies
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.cpio_archive import Entry, archive
from orchestrator.errors import HostError
from orchestrator.paths import data_dir

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
