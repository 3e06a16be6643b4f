# SPDX-License-Identifier: GPL-2.0-only
"""Unpacked Debian packages as artifacts, with the exact versions they were chosen at remembered.

A set of packages is chosen once (from the host's suites, at the newest version) and kept to until its record in the
cache's ``pins`` folder is removed: two runs of one experiment use the same kernel, whatever the archive did between.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.workshop import Workshop
from orchestrator.errors import HostError, LabError
from orchestrator.process import run

HOST_ARCHITECTURE = "amd64"
"""QEMU's and the compiler's side: packages with programs that run on the host (kbuild) are of this architecture."""

DEBIAN_ARCHITECTURE = {"i386": "i386", "x86_64": "amd64"}
"""A kernel's architecture in the words of Debian's packages."""

_EXTRACT_LIMIT = 300.0

Choice = Callable[[AptRoot], Sequence[Package]]


def unpacked_packages(workshop: Workshop, name: str, arch: str, choose: Choice) -> Artifact:
    """The unpacked packages called ``name``; ``choose`` names them when they were not chosen before.

    The artifact's folder is their common root; its inputs list every package with version and checksum.
    Raises HostError when they cannot be had.
    """
    pin = workshop.cache.root / "pins" / f"{name}.json"
    pinned = _pinned(pin)
    if pinned is not None:
        found = workshop.cache.get("debian", _inputs(pinned))
        if found is not None:
            return found
    with workshop.cache.lock(f"pin-{name}"):
        apt = AptRoot(workshop, list(dict.fromkeys((HOST_ARCHITECTURE, DEBIAN_ARCHITECTURE[arch]))))
        packages = _pinned(pin)
        found = workshop.cache.get("debian", _inputs(packages)) if packages is not None else None
        if found is not None:
            return found
        workshop.need_network(name)
        with workshop.cache.lock(f"apt-{arch}"):
            apt.refresh()
            # An archive keeps only the newest versions, so what was pinned and then lost is chosen anew.
            packages = tuple(choose(apt))
            artifact = workshop.cache.obtain(
                "debian", _inputs(packages), name, lambda folder: _unpack(workshop, apt, packages, folder)
            )
        pin.parent.mkdir(exist_ok=True)
        unfinished = pin.with_suffix(".new")
        unfinished.write_text(json.dumps([asdict(p) for p in packages], indent=1))
        unfinished.replace(pin)
    return artifact


def _pinned(pin: Path) -> tuple[Package, ...] | None:
    try:
        return tuple(Package(**fields) for fields in json.loads(pin.read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise LabError(f"{pin} is no record of chosen packages", hint=f"remove it: rm '{pin}'") from None


def _inputs(packages: Sequence[Package]) -> dict[str, object]:
    return {"packages": {f"{p.name}:{p.architecture}": [p.version, p.sha256] for p in packages}}


def _unpack(workshop: Workshop, apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
    archives = folder / "archives"
    for package, archive in zip(packages, apt.download(packages, archives), strict=True):
        workshop.say(f"unpacking {package.name}")
        finished = run(["dpkg-deb", "-x", str(archive), str(folder)], time_limit=_EXTRACT_LIMIT)
        if finished.status != 0:
            raise HostError(f"cannot unpack {archive.name}", detail=finished.complaint())
        archive.unlink()
    archives.rmdir()
