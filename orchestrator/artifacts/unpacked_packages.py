# SPDX-License-Identifier: GPL-2.0-only
"""Packages of Debian unpacked below one root."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.arch import ARCHITECTURES, HOST
from orchestrator.artifacts.apt_root import AptRoot
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.debian_package import Package
from orchestrator.artifacts.pinned_packages import Choice, PackageSet, pinned_artifact
from orchestrator.catalog.debian_release import Suites
from orchestrator.errors import HostError
from orchestrator.process import run

_LOADER = Path("usr/lib", HOST.triplet, Path(HOST.loader).name)
_WITH_OWN_LIBRARIES = Path(__file__).with_name("run-with-own-libraries.sh")


def unpacked_packages(
    context: BuildContext,
    name: str,
    arch: str,
    choose: Choice,
    *,
    places: Sequence[Suites] = (),
    is_newest: bool = False,
) -> Artifact:
    """The unpacked packages of the set ``name``, below one root. Raises HostError."""
    architectures = dict.fromkeys((HOST.debian, ARCHITECTURES[arch].debian))
    package_set = PackageSet(name, arch, tuple(architectures), tuple(places), is_newest)
    return pinned_artifact(context, "debian", package_set, choose, _unpack)


def _unpack(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
    archives = folder / "archives"
    for package, archive in zip(packages, apt.download(packages, archives), strict=True):
        apt.context.say(f"unpacking {package.name}")
        unpacked = run(["dpkg-deb", "-x", str(archive), str(folder)], time_limit=300)
        unpacked.or_raise(HostError, f"cannot unpack {archive.name}")
        archive.unlink()
    archives.rmdir()
    for program in folder.glob("usr/lib/linux-kbuild-*/**/*") if (folder / _LOADER).exists() else ():
        if program.is_file() and not program.is_symlink() and program.read_bytes()[:4] == b"\x7fELF":
            program.rename(program.with_name(f"{program.name}.own"))
            program.write_text(_WITH_OWN_LIBRARIES.read_text())
            program.chmod(0o755)
