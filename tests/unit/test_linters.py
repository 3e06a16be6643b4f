# SPDX-License-Identifier: GPL-2.0-only
"""Is the whole tree formatted, and do ruff and mypy find nothing in it?"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 3600.0
"""Seconds: mypy without its cache takes a minute of an idle processor."""


@pytest.mark.parametrize("words", ["ruff check .", "ruff format --check .", "mypy"])
def test_nothing_is_found(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", *words.split()],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 0, done.stdout
