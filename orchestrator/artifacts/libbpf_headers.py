# SPDX-License-Identifier: GPL-2.0-only
"""libbpf's headers for BPF programs: Debian's newer ones, where a source needs more than the host's have."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from orchestrator.arch import HOST
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.unpacked_packages import unpacked_packages
from orchestrator.catalog.debian_release import debian
from orchestrator.catalog.kernels import version_numbers
from orchestrator.errors import HostError

_HEADERS = Path("usr/include")
_VERSION = Path("bpf/libbpf_version.h")
_LARGEST = 1 << 16


def newer_libbpf(context: BuildContext, text: str) -> Path | None:
    """The folder with Debian's newer headers of libbpf, if a ``text`` has names that only those define.

    None also if the host's are as new, or if the newer ones cannot be fetched.
    """
    newer = debian().libbpf
    version = _version(Path("/") / _HEADERS)
    is_needed = re.search(rf"(?<!\w)(?:{'|'.join(newer.names)})(?!\w)", text) is not None
    if not is_needed or version_numbers(version) >= version_numbers(newer.version):
        return None
    suites = [suites for suites in debian().elsewhere if suites.suites[0] == newer.release]
    try:
        name = f"{newer.package}-{newer.version}"
        packages = unpacked_packages(
            context, name, HOST.name, lambda apt: [apt.show(newer.package, HOST.debian)], places=suites
        )
    except HostError as error:
        context.say(f"compiling with the host's headers of libbpf {version}, as there are no newer ones: {error.what}")
        return None
    return packages.path / _HEADERS


def _version(folder: Path) -> str:
    """The version of the headers in a folder, ``0`` if there are none."""
    numbers: dict[str, str] = {}
    with suppress(OSError), (folder / _VERSION).open(errors="replace") as header:
        numbers = dict(re.findall(r"#define LIBBPF_(MAJOR|MINOR)_VERSION (\d+)", header.read(_LARGEST)))
    return ".".join(numbers.get(part, "0") for part in ("MAJOR", "MINOR"))
