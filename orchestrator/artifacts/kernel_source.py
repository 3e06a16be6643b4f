# SPDX-License-Identifier: GPL-2.0-only
"""The kernel's source, unpacked once: all lab kernels are built from the same path, so that they can share objects."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.debian import unpacked_packages
from orchestrator.artifacts.workshop import Workshop
from orchestrator.errors import HostError
from orchestrator.process import run

UNPACKED_GB = 1.7
"""Disk for the package and the unpacked source."""

_UNPACK_LIMIT = 900.0


def kernel_source(workshop: Workshop, package: str) -> Artifact:
    """The unpacked source of a ``linux-source`` package, in ``linux/``. Raises HostError when it cannot be had."""
    archive = unpacked_packages(workshop, package, "x86_64", lambda apt: [apt.show(package, "all")])

    def build(folder: Path) -> None:
        workshop.say(f"unpacking {package} ({UNPACKED_GB} GB)")
        tarball = archive.path / "usr/src" / f"{package}.tar.xz"
        (folder / "linux").mkdir()
        argv = ["tar", "-C", str(folder / "linux"), "--strip-components=1", "-xf", str(tarball)]
        finished = run(argv, time_limit=_UNPACK_LIMIT)
        if finished.status != 0:
            raise HostError(f"cannot unpack {tarball}", detail=finished.complaint())

    return workshop.cache.obtain("kernel-source", {"package": archive.key}, package, build)
