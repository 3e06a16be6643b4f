# SPDX-License-Identifier: GPL-2.0-only
"""Unpacked Debian packages as artifacts."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.apt import AptRoot, Package
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.pins import Choice, PackageSet, pinned_artifact
from orchestrator.catalog.debian import Suites
from orchestrator.errors import HostError
from orchestrator.process import run

HOST_ARCHITECTURE = "amd64"
"""QEMU's and the compiler's side: packages with programs that run on the host (kbuild) are of this architecture."""

DEBIAN_ARCHITECTURE = {"i386": "i386", "x86_64": "amd64"}
"""A kernel's architecture in the words of Debian's packages."""

_KIND = "debian"
_EXTRACT_LIMIT = 300.0

_BUILD_PROGRAMS = "usr/lib/linux-kbuild-*/**/*"
_LIBRARIES, _LOADER, _OWN = "usr/lib/x86_64-linux-gnu", "ld-linux-x86-64.so.2", ".own"
_WITH_OWN_LIBRARIES = f"""\
#!/bin/sh
# The program of this name, with the libc of its release, which may be newer than the host's.
here=$(readlink -f "$0")
libraries=${{here%%/usr/lib/linux-kbuild-*}}/{_LIBRARIES}
exec "$libraries/{_LOADER}" --argv0 "$0" --library-path "$libraries" "$here{_OWN}" "$@"
"""


def unpacked_packages(
    context: BuildContext,
    name: str,
    arch: str,
    choose: Choice,
    *,
    places: Sequence[Suites] = (),
    is_newest: bool = False,
) -> Artifact:
    """The unpacked packages called ``name``; ``choose`` names them when they were not chosen before (see ``pins``).

    ``places`` and ``is_newest`` are those of ``PackageSet``. Where libc is among them, the programs of a kernel's build
    system run with that one. The artifact's folder is their common root; its inputs list every package with version and
    checksum. Raises HostError when they cannot be had.
    """
    architectures = dict.fromkeys((HOST_ARCHITECTURE, DEBIAN_ARCHITECTURE[arch]))

    def unpack(apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
        _unpack(context, apt, packages, folder)

    wanted = PackageSet(name, arch, tuple(architectures), tuple(places), is_newest)
    return pinned_artifact(context, _KIND, wanted, choose, unpack)


def _unpack(context: BuildContext, apt: AptRoot, packages: Sequence[Package], folder: Path) -> None:
    archives = folder / "archives"
    for package, archive in zip(packages, apt.download(packages, archives), strict=True):
        context.say(f"unpacking {package.name}")
        finished = run(["dpkg-deb", "-x", str(archive), str(folder)], time_limit=_EXTRACT_LIMIT)
        if finished.status != 0:
            raise HostError(f"cannot unpack {archive.name}", detail=finished.complaint())
        archive.unlink()
    archives.rmdir()
    for program in folder.glob(_BUILD_PROGRAMS) if (folder / _LIBRARIES / _LOADER).exists() else ():
        if program.is_file() and not program.is_symlink() and program.read_bytes()[:4] == b"\x7fELF":
            program.rename(program.with_name(f"{program.name}{_OWN}"))
            program.write_text(_WITH_OWN_LIBRARIES)
            program.chmod(0o755)
