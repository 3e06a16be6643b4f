# SPDX-License-Identifier: GPL-2.0-only
"""The standard kernel events, and where in the kernel each of them is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache

from pydantic import Field

from orchestrator.catalog.data import Fact, named, read
from orchestrator.catalog.kernels import Arch

_CALL_PREFIX: Mapping[Arch, str] = {"i386": "__ia32_sys_", "x86_64": "__x64_sys_"}


class StandardEvent(Fact):
    """An event: its ``marker`` for static probes, and the functions whose entries are probed for dynamic ones.

    ``functions`` are the names that one has had, the same on all architectures; ``calls`` are system calls' functions
    by architecture, without their prefix.
    """

    name: str
    title: str
    group: str
    marker: str
    functions: list[str] = Field(default_factory=list)
    calls: dict[Arch, list[str]] = Field(default_factory=dict)

    def function(self, has: Callable[[str], bool]) -> str | None:
        """The function whose entry is the event, in a kernel that ``has`` it; None for one at system calls."""
        return next((name for name in self.functions if has(name)), next(iter(self.functions), None))

    def call_functions(self, arch: Arch) -> list[str]:
        """Return the system calls' functions; on a 64-bit kernel those of its own calls only."""
        return [_CALL_PREFIX[arch] + call for call in self.calls.get(arch, [])]


@lru_cache(maxsize=1)
def standard_events() -> Mapping[str, StandardEvent]:
    """Return the events by name, in the order in which they are numbered and reported."""
    return named(StandardEvent, read("events.yaml"))
