# SPDX-License-Identifier: GPL-2.0-only
"""The workshop of a command: the user's cache, and progress on stderr."""

from __future__ import annotations

import sys

from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.workshop import Workshop
from orchestrator.catalog.kernels import KernelSpec, kernels
from orchestrator.catalog.spelling import unknown
from orchestrator.errors import UsageError
from orchestrator.paths import cache_dir


def open_workshop(*, offline: bool) -> Workshop:
    """The workshop on the user's cache."""
    return Workshop(Cache(cache_dir()), offline, lambda text: print(text, file=sys.stderr, flush=True))


def kernel_named(name: str) -> KernelSpec:
    """A kernel of the catalogue. Raises UsageError with the nearest spelling."""
    if name not in kernels():
        raise UsageError(unknown("kernel", name, kernels()))
    return kernels()[name]
