# SPDX-License-Identifier: GPL-2.0-only
"""Parts of the package that are imported when they are needed, so that a command loads no other command's."""

from __future__ import annotations

import importlib
from typing import Any


def loaded(source: str) -> Any:
    """``MODULE:NAME``, imported now; a module that is not named in full is of this package."""
    module, _, name = source.partition(":")
    return getattr(importlib.import_module(f"orchestrator.{module}"), name)
