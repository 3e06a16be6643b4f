# SPDX-License-Identifier: GPL-2.0-only
"""The Debian release that guests are made of."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class DebianRelease(Fact):
    """A release by its code name, its suites, and the compiler (a version of gcc) that its kernels were built with.

    ``suites`` are those of the main archive, the release's own first; ``security_suite`` is in an archive of its own.
    """

    release: str
    title: str
    suites: list[str]
    security_suite: str
    keyrings: list[str]
    other_releases: list[str]
    compiler: str
    compiler_packages: list[str]
    compiler_tools: list[str]


@lru_cache(maxsize=1)
def debian() -> DebianRelease:
    """Return the release of ``debian.yaml``."""
    return DebianRelease.model_validate(read("debian.yaml"))
