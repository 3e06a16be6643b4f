# SPDX-License-Identifier: GPL-2.0-only
"""Unpacked Debian packages as artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.pins import Choice, PackageSet, pinned_artifact
from orchestrator.errors import HostError
from orchestrator.process import run

HOST_ARCHITECTURE = "amd64"
"""QEMU's and the compiler's side: packages with programs that run on the host (kbuild) are of this architecture."""

DEBIAN_ARCHITECTURE = {"i386": "i386", "x86_64": "amd64"}
"""A kernel's architecture in the words of Debian's packages."""

_KIND = "debian"
_EXTRACT_LIMIT = 300.0


def unpacked_packages(context: BuildContext, name: str, arch: str, choose: Choice) -> Artifact:
    """The unpacked packages called ``name``; ``choose`` names them when they were not chosen before (see ``pins``).

    The artifact's folder is their common root; its inputs list every package with version and checksum.
    Raises HostError when they cannot be had.
    """
    architectures = dict.fromkeys((HOST_ARCHITECTURE, DEBIAN_ARCHITECTURE[arch]))

    def unpack(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
        _unpack(context, apt, packages, folder)

    return pinned_artifact(context, _KIND, PackageSet(name, arch, tuple(architectures)), choose, unpack)


def _unpack(context: BuildContext, apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
    archives = folder / "archives"
    for package, archive in zip(packages, apt.download(packages, archives), strict=True):
        context.say(f"unpacking {package.name}")
        finished = run(["dpkg-deb", "-x", str(archive), str(folder)], time_limit=_EXTRACT_LIMIT)
        if finished.status != 0:
            raise HostError(f"cannot unpack {archive.name}", detail=finished.complaint())
        archive.unlink()
    archives.rmdir()
