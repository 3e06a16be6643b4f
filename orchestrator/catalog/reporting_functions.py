# SPDX-License-Identifier: GPL-2.0-only
"""Kernel functions that are on top of a call trace without being to blame for what is reported."""

from __future__ import annotations

from fnmatch import fnmatchcase
from functools import cached_property, lru_cache

from orchestrator.catalog.data import Fact, read


class ReportingFunctions(Fact):
    """Patterns of their names: those that ``report``, those that ``serve`` the one that called them, the ``idle``."""

    report: list[str]
    serve: list[str]
    idle: list[str]

    @cached_property
    def _all(self) -> tuple[str, ...]:
        return (*self.report, *self.serve, *self.idle)

    def has(self, name: str) -> bool:
        """Whether a function is one of them."""
        return any(fnmatchcase(name, pattern) for pattern in self._all)

    def is_idle(self, name: str) -> bool:
        """Whether a CPU that is in a function waits for work."""
        return any(fnmatchcase(name, pattern) for pattern in self.idle)


@lru_cache(maxsize=1)
def reporting_functions() -> ReportingFunctions:
    """The catalogue's."""
    return ReportingFunctions.model_validate(read("reporting_functions.yaml"))
