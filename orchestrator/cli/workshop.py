# SPDX-License-Identifier: GPL-2.0-only
"""The workshop of a command: the user's cache, and progress on stderr."""

from __future__ import annotations

import sys

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.workshop import Workshop
from orchestrator.paths import cache_dir


def open_workshop(*, offline: bool) -> Workshop:
    """The workshop on the user's cache."""
    return Workshop(Cache(cache_dir()), offline, lambda text: print(text, file=sys.stderr, flush=True))
