# SPDX-License-Identifier: GPL-2.0-only
"""What is a worker called to whom nobody gave a name? As its host is."""

from __future__ import annotations

import re


def worker_name(host: str) -> str:
    """A worker's name made of a host's: 64 of its letters, digits, dots, underscores and hyphens."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", host).lstrip("._-")[:64] or "worker"
