# SPDX-License-Identifier: GPL-2.0-only
"""The context of a command: the user's cache, and progress on stderr."""

from __future__ import annotations

import sys

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.paths import cache_dir


def open_context(*, offline: bool) -> BuildContext:
    """The context on the user's cache."""
    return BuildContext(Cache(cache_dir()), offline, lambda text: print(text, file=sys.stderr, flush=True))
