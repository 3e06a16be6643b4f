# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's type information (BTF): what making it needs, and what of the debug information before it is kept."""

from __future__ import annotations

from pathlib import Path

from orchestrator.artifacts.toolchain import Toolchain
from orchestrator.errors import BuildError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_OPTION = "CONFIG_DEBUG_INFO_BTF=y"
_PROGRAMS = ("scripts", "tools")
"""Folders of a build tree whose objects belong to the build's own programs."""
_STRIP_LIMIT = 300.0


def has_types(config: str) -> bool:
    """Whether a configuration is that of a kernel with type information."""
    return _OPTION in config.splitlines()


def check_type_maker(what: str) -> None:
    """Raise HostError where the host has no pahole.

    Linux 6.1's build system warns, and builds for ten minutes before it fails; 6.12's only switches the option off.
    """
    check_installed("type-packages.txt", f"{what}, which has type information (BTF),")


def drop_debug_information(build: Path, toolchain: Toolchain) -> None:
    """Remove the debug information from a built tree, and all objects, which have most of it. Raises BuildError.

    vmlinux keeps its symbols and types, and modules build as before: they need headers, programs and symbol versions.
    """
    for file in {*build.rglob("*.o"), *build.rglob("*.a"), *build.glob(".tmp_vmlinux*")}:
        if file.relative_to(build).parts[0] not in _PROGRAMS:
            file.unlink()
    image = build / "vmlinux"
    stripped = run([toolchain.program("strip"), "--strip-debug", str(image)], time_limit=_STRIP_LIMIT)
    if stripped.status != 0:
        raise BuildError(f"strip fails on {image}", detail=stripped.complaint())
