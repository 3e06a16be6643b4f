# SPDX-License-Identifier: GPL-2.0-only
"""Which packages are installed on this Debian host, what do they depend on, and which files did they bring?"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

_FIELDS = ("binary:Package", "Package", "db:Status-Status", "Essential", "Pre-Depends", "Depends", "Provides")
_FORMAT = "\\t".join(f"${{{field}}}" for field in _FIELDS) + "\\n"
_NAME = re.compile(r"[a-z0-9][a-z0-9+.-]*")


@dataclass(frozen=True)
class InstalledPackage:
    """A package as dpkg knows it; ``dependencies`` are groups of names of which one is enough."""

    qualified: str
    name: str
    essential: bool
    dependencies: tuple[tuple[str, ...], ...]
    provides: tuple[str, ...]


class DpkgDatabase:
    """The installed packages of a host."""

    def __init__(self, packages: Iterable[InstalledPackage]) -> None:
        self._packages = tuple(packages)
        self._real: dict[str, list[InstalledPackage]] = defaultdict(list)
        self._virtual: dict[str, list[InstalledPackage]] = defaultdict(list)
        for package in self._packages:
            self._real[package.name].append(package)
            for name in package.provides:
                self._virtual[name].append(package)

    def essential(self) -> set[str]:
        """The names of the packages that every Debian system has."""
        return {package.name for package in self._packages if package.essential}

    def providing(self, name: str) -> list[InstalledPackage]:
        """The installed package of a name, or else those that provide it: libelf1t64 is Debian 13's libelf1."""
        return self._real.get(name) or self._virtual.get(name, [])

    def with_dependencies(self, names: Iterable[str]) -> list[InstalledPackage]:
        """The packages of these names and, recursively, what they depend on, recommended packages apart."""
        packages: dict[str, InstalledPackage] = {}
        waiting = [package for name in names for package in self.providing(name)]
        while waiting:
            package = waiting.pop()
            if package.qualified in packages:
                continue
            packages[package.qualified] = package
            for alternatives in package.dependencies:
                waiting += next(filter(None, map(self.providing, alternatives)), [])
        return list(packages.values())


def read_dpkg_database() -> DpkgDatabase | None:
    """The host's database; None on a host without dpkg."""
    if shutil.which("dpkg-query") is None:
        return None
    argv = ["dpkg-query", "--show", f"--showformat={_FORMAT}"]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return DpkgDatabase(_parsed(listed))


def _parsed(listed: str) -> Iterator[InstalledPackage]:
    for line in listed.splitlines():
        qualified, name, status, essential, before, depends, provides = line.split("\t")
        if status == "installed":
            dependencies = (*_groups(before), *_groups(depends))
            provided = tuple(one for group in _groups(provides) for one in group)
            yield InstalledPackage(qualified, name, essential == "yes", dependencies, provided)


def _groups(field: str) -> tuple[tuple[str, ...], ...]:
    """A relation such as ``gcc (>= 12) | clang, perl:any`` as groups of alternatives, without versions."""
    groups = (re.findall(_NAME, re.sub(r"\(.*?\)|:\w+", "", group)) for group in field.split(","))
    return tuple(tuple(group) for group in groups if group)


def files_of(packages: Iterable[InstalledPackage]) -> list[Path]:
    """The files, links and folders that packages brought."""
    return [Path(name) for name in names_of_files(packages)]


def names_of_files(packages: Iterable[InstalledPackage]) -> list[str]:
    """The same as texts: packages have ten thousands of files."""
    argv = ["dpkg-query", "--listfiles", *(package.qualified for package in packages)]
    listed = subprocess.run(argv, check=True, capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if line.startswith("/")]  # other lines are diversions
