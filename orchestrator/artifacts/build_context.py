# SPDX-License-Identifier: GPL-2.0-only
"""What building an artifact needs: the cache, whether the network may be used, where progress goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.artifacts.cache import Cache
from orchestrator.errors import HostError


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True)
class BuildContext:
    """``say`` gets one line for each thing that takes seconds or more, ``warn`` the warnings of what was built."""

    cache: Cache
    offline: bool = False
    say: Callable[[str], None] = _silent
    warn: Callable[[str], None] = _silent

    def need_network(self, what: str) -> None:
        """Raise HostError with ``--offline``, where ``what`` would have to be fetched."""
        if self.offline:
            raise HostError(f"{what} is not in the cache ({self.cache.root})", hint="run once without --offline")
