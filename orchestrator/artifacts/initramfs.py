# SPDX-License-Identifier: GPL-2.0-only
"""The small root file system a guest starts from: busybox, the agent, the benchmarks, the channel's drivers."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package
from orchestrator.artifacts.compiler import guest_programs
from orchestrator.artifacts.cpio import Entry, archive
from orchestrator.artifacts.debian import DEBIAN_ARCHITECTURE, unpacked_packages
from orchestrator.artifacts.drivers import with_dependencies
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.workshop import Workshop
from orchestrator.errors import HostError

_FOLDERS = ("bin", "dev", "etc", "lib", "lib/modules", "proc", "root", "sys", "tmp")
_DRIVERS = ("virtio_pci", "virtio_console")
_APPLETS = Path(__file__).with_name("applets.txt")


def initramfs(workshop: Workshop, kernel: Kernel) -> Path:
    """The guest's initramfs for ``kernel``, uncompressed: emulated CPUs are slow at decompressing."""
    arch = kernel.spec.arch
    busybox = unpacked_packages(workshop, f"busybox-{arch}", arch, lambda apt: _choose_busybox(apt, arch))
    programs = guest_programs(workshop, arch)
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
            *(Entry.file(f"lib/modules/{p.name}", p.read_bytes(), 0o644) for p in drivers),
            Entry.file("etc/modules", "".join(f"/lib/modules/{p.name}\n" for p in drivers).encode(), 0o644),
        ]
        (folder / "initramfs.cpio").write_bytes(archive(entries))

    artifact = workshop.cache.obtain("initramfs", inputs, f"initramfs of {kernel.spec.name}", build)
    return artifact.path / "initramfs.cpio"


def _choose_busybox(apt: AptRoot, arch: str) -> list[Package]:
    return [apt.show("busybox-static", DEBIAN_ARCHITECTURE[arch])]


def _applets() -> list[str]:
    return _APPLETS.read_text().split()


def _recipe() -> object:
    return [_FOLDERS, _DRIVERS, _applets()]
