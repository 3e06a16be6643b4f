# SPDX-License-Identifier: GPL-2.0-only
"""The programs and packages that the host must have: lists of them, what is missing, and how it is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.errors import HostError
from orchestrator.paths import data_dir

INSTALL_COMMAND = "apt-get install -y --no-install-recommends"


@dataclass(frozen=True)
class Requirement:
    """One line of a package list: what is needed, its Debian package, and what the lab uses it for."""

    need: str
    package: str
    why: str

    @property
    def is_python(self) -> bool:
        return self.need.startswith("python")

    def location(self) -> Path | None:
        if self.need.startswith("/"):
            path = Path(self.need)
            return path if path.exists() else None
        program = shutil.which(self.need)
        return Path(program) if program else None


def parse_requirements(text: str, source: str) -> tuple[Requirement, ...]:
    """Read a package list. Raises HostError for a malformed line, with ``source`` as its file."""
    requirements = []
    for number, line in enumerate(text.splitlines(), start=1):
        columns = [] if line.startswith("#") else line.split(maxsplit=2)
        if len(columns) not in (0, 3):
            what = "a line must hold a need, a package and why it is needed"
            raise HostError(what, where=f"{source}:{number}", detail=[line])
        requirements += [Requirement(*columns)] if columns else []
    return tuple(requirements)


def load_requirements(name: str = "host-packages.txt") -> tuple[Requirement, ...]:
    """Read a package list of the data folder ``images``."""
    path = data_dir("images") / name
    return parse_requirements(path.read_text(encoding="utf-8"), str(path))


_INSTALLER = os.environ.get("ORCHESTRATOR_INSTALLER")
"""The script ``lab``, if it started this process and may install packages: not with ``--offline``."""


def check_installed(name: str, what: str) -> None:
    """Install what a list lacks that ``what`` needs, as ``check_all_installed`` does."""
    check_all_installed({name: what})


def check_all_installed(lists: Mapping[str, str]) -> None:
    """Install all that package lists lack, at once, if the script ``lab`` started this process.

    ``lists`` has what needs each list. Raises HostError with the packages to install if some are still missing.
    """
    lacking = {name: packages for name in lists if (packages := _missing(name))}
    if lacking and _INSTALLER:
        # What it says goes to stderr; standard output may be a document, or a protocol.
        argv = [_INSTALLER, "install-packages", *lacking]
        subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False)
        lacking = {name: packages for name in lacking if (packages := _missing(name))}
    if lacking:
        packages = " ".join(dict.fromkeys(package for names in lacking.values() for package in names))
        what = "; ".join(f"{lists[name]} needs {' '.join(names)}" for name, names in lacking.items())
        raise HostError(what, hint=f"as root: {INSTALL_COMMAND} {packages}")


def _missing(name: str) -> Sequence[str]:
    return list(dict.fromkeys(need.package for need in load_requirements(name) if need.location() is None))
