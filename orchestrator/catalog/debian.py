# SPDX-License-Identifier: GPL-2.0-only
"""The Debian release that guests are made of."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class Suites(Fact):
    """Suites that packages are taken from together, by the name of their ``release``.

    ``suites`` are those of the main archive, the first of which must be there; ``security_suite`` is in an archive of
    its own; empty where there is none.
    """

    release: str
    title: str
    suites: list[str]
    security_suite: str = ""


class DebianRelease(Suites):
    """A release by its code name, its suites, and the compiler (a version of gcc) that its kernels were built with.

    ``elsewhere`` has the suites in which kernels of other versions are looked for.
    """

    elsewhere: list[Suites]
    keyrings: list[str]
    other_releases: list[str]
    compiler: str
    compiler_packages: list[str]
    compiler_tools: list[str]


@lru_cache(maxsize=1)
def debian() -> DebianRelease:
    """Return the release of ``debian.yaml``."""
    return DebianRelease.model_validate(read("debian.yaml"))
