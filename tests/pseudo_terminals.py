# SPDX-License-Identifier: GPL-2.0-only
"""Whether programs can be put on terminals of their own here."""

from __future__ import annotations

import os

import pytest


def _why_none() -> str:
    try:
        for end in os.openpty():
            os.close(end)
    except OSError as error:
        return f"this host has no pseudo-terminal to give ({error.strerror}); mount -t devpts devpts /dev/pts"
    return ""


_REASON = _why_none()

PSEUDO_TERMINALS = pytest.mark.skipif(bool(_REASON), reason=_REASON)
"""For tests that put a program on a terminal."""
