# SPDX-License-Identifier: GPL-2.0-only
"""The content of a kernel's ``.config`` file."""

from __future__ import annotations

import re
from pathlib import Path

_SET = re.compile(r"^(CONFIG_\w+)=(.*)$", re.MULTILINE)


def read_config(path: Path) -> dict[str, str]:
    """The options that are set, as the file writes their values. Raises OSError."""
    return dict(_SET.findall(path.read_text(encoding="utf-8", errors="replace")))
