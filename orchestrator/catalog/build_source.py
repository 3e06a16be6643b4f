# SPDX-License-Identifier: GPL-2.0-only
"""The files of the kernel's source that a build of the smallest kernel needs."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePosixPath

from orchestrator.catalog.data import Fact, read


class BuildSource(Fact):
    """The choice, as ``build_source.yaml`` explains it, and the ``package`` it is made from."""

    package: str
    build: list[str]
    no_code: list[str]
    only: dict[str, list[str]]
    left_out: list[str]

    def takes(self, folder: str, names: Iterable[str]) -> list[str]:
        """The files that are taken of those in a folder (its path in the source; the top's is ``.``)."""
        whole = self._is_whole(PurePosixPath(folder))
        return [name for name in names if self._takes(name, whole=whole)]

    def _takes(self, name: str, *, whole: bool) -> bool:
        if any(fnmatchcase(name, pattern) for pattern in self.build):
            return True
        return whole and not any(fnmatchcase(name, pattern) for pattern in self.no_code)

    def _is_whole(self, folder: PurePosixPath) -> bool:
        if any(folder.is_relative_to(left_out) for left_out in self.left_out):
            return False
        for parent, kept in self.only.items():
            if folder.is_relative_to(parent) and not any(folder.is_relative_to(f"{parent}/{name}") for name in kept):
                return False
        return True


@lru_cache(maxsize=1)
def build_source_choice() -> BuildSource:
    """Return the lab's choice."""
    return BuildSource.model_validate(read("build_source.yaml"))
