# SPDX-License-Identifier: GPL-2.0-only
"""Which programs has a host with the packages of the lab's lists and nothing else? They are linked in one folder.

With that folder for a PATH, a test fails as soon as the lab calls a program that no list brings, whatever else is
installed on the host.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from dpkg_database import DpkgDatabase, names_of_files

from orchestrator.host_packages import Requirement, parse_requirements
from orchestrator.paths import data_dir

PREFIX = "orchestrator-programs-"
"""How the name of the folder begins."""

_SYSTEM_FOLDERS = (Path("/usr/sbin"), Path("/usr/bin"), Path("/sbin"), Path("/bin"))
_SYSTEM_NAMES = {str(folder) for folder in _SYSTEM_FOLDERS}
_ALTERNATIVES = "/etc/alternatives/"


def read_lists() -> dict[str, tuple[Requirement, ...]]:
    """The lines of every list, by its name."""
    files = sorted(data_dir("images").glob("*-packages.txt"))
    return {file.name: parse_requirements(file.read_text(), file.name) for file in files}


def listed_programs(database: DpkgDatabase, requirements: Sequence[Requirement]) -> dict[str, Path]:
    """The programs, by name, of the required packages, of the essential ones, and of what all of these depend on.

    A listed program that no package brought, as one in /usr/local, is where the host's PATH finds it.
    """
    packages = [*(requirement.package for requirement in requirements), *database.essential()]
    unpackaged = {requirement.need: requirement.location() for requirement in requirements}
    paths = {need: location for need, location in unpackaged.items() if location is not None and "/" not in need}
    return {**paths, **programs_of(database, packages)}


def programs_of(database: DpkgDatabase, packages: Iterable[str]) -> dict[str, Path]:
    """The programs, by name, of packages and of what they depend on."""
    names = names_of_files(database.with_dependencies(packages))
    files = [Path(name) for name in names if name.rpartition("/")[0] in _SYSTEM_NAMES]
    # The first folder of root's PATH wins, so it comes last.
    files.sort(key=lambda file: _SYSTEM_FOLDERS.index(file.parent), reverse=True)
    brought = {file.name: file for file in files if os.access(file, os.X_OK)}
    known = {file.resolve() for file in brought.values()}
    return {**{link.name: link for link in _alternatives() if link.resolve() in known}, **brought}


def _alternatives() -> Iterator[Path]:
    """The links that no package brought: awk, which is mawk or gawk."""
    for folder in _SYSTEM_FOLDERS[:2]:
        links = (Path(entry) for entry in os.scandir(folder) if entry.is_symlink())
        yield from (link for link in links if str(link.readlink()).startswith(_ALTERNATIVES))


def link_programs(programs: Mapping[str, Path], folder: Path) -> None:
    """Fill a folder with links to programs, and let every user in: some tests become one who is not root."""
    folder.chmod(0o755)
    for name, program in programs.items():
        (folder / name).symlink_to(program)
