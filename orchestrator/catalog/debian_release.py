# SPDX-License-Identifier: GPL-2.0-only
"""The Debian release of the lab's packages, and the suites of the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache

from orchestrator.catalog.data import CatalogEntry, read


class Suites(CatalogEntry):
    """Suites to take packages from. The first is required; the security suite is in an archive of its own."""

    release: str
    title: str
    suites: list[str]
    security_suite: str = ""

    def having(self, versions: Iterable[str]) -> str:
        """The clause ``Debian 13 has 6.1, 6.12``, or ``has none``."""
        return f"{self.title} has {', '.join(versions) or 'none'}"


class NewerHeaders(CatalogEntry):
    """A package with headers, of another release by that one's first suite, in a ``version`` that hosts may lack.

    ``names`` are expressions for what only they define.
    """

    package: str
    release: str
    version: str
    names: list[str]


class DebianRelease(Suites):
    """A release, the compiler of its kernels (a gcc), and the suites ``elsewhere`` with other kernels.

    ``libbpf`` has the headers that BPF programs are compiled with where a host's are older and not enough.
    """

    elsewhere: list[Suites]
    keyrings: list[str]
    other_releases: list[str]
    compiler: str
    compiler_packages: list[str]
    compiler_tools: list[str]
    libbpf: NewerHeaders


@lru_cache(maxsize=1)
def debian() -> DebianRelease:
    """The release of ``debian.yaml``."""
    return DebianRelease.model_validate(read("debian.yaml"))


def releases() -> Mapping[str, Suites]:
    """The known releases by their main suites' names."""
    known = debian()
    return {suites.suites[0]: suites for suites in reversed((known, *known.elsewhere))}
