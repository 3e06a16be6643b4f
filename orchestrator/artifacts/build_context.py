# SPDX-License-Identifier: GPL-2.0-only
"""What every build gets: the cache, whether the network may be used, and where progress and warnings go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from orchestrator.artifacts.cache import Cache
from orchestrator.errors import HostError

OFFLINE_HINT = "run once without --offline"


def _silent(text: str) -> None:
    del text


@dataclass(frozen=True)
class BuildContext:
    """The cache; ``say`` gets a line for whatever takes seconds or more, ``warn`` the warnings of builds.

    ``checked`` has what need not be checked again in the same command.
    """

    cache: Cache
    offline: bool = False
    say: Callable[[str], None] = _silent
    warn: Callable[[str], None] = _silent
    checked: set[object] = field(default_factory=set, compare=False)

    def need_network(self, what: str) -> None:
        if self.offline:
            raise HostError(f"{what} is not in the cache ({self.cache.root})", hint=OFFLINE_HINT)
