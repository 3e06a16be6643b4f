# SPDX-License-Identifier: GPL-2.0-only
"""Where a path leads that a user has written for something of the user's own."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import ConfigError


def user_path(name: str) -> Path:
    """The path, absolute, with a user's home folder for ``~``. Raises ConfigError where there is no such user."""
    try:
        return Path(name).expanduser().absolute()
    except RuntimeError:
        raise ConfigError(f"found {name!r}; there is no such user") from None
