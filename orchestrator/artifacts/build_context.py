# SPDX-License-Identifier: GPL-2.0-only
"""What every maker of artifacts works with: the cache, whether the network may be used, whom to tell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.artifacts.cache import Cache
from orchestrator.errors import HostError


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True)
class BuildContext:
    """``say`` gets one line for each thing that takes a person's time."""

    cache: Cache
    offline: bool = False
    say: Callable[[str], None] = _silent

    def need_network(self, what: str) -> None:
        """Raise HostError when ``what`` would have to be fetched and ``--offline`` was given."""
        if self.offline:
            raise HostError(f"{what} is not in the cache ({self.cache.root})", hint="run once without --offline")
