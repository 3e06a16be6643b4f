# SPDX-License-Identifier: GPL-2.0-only
"""How long the soak is, and where its pictures go."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from orchestrator.artifacts import saved_guests
from orchestrator.paths import cache_dir


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--soak-guests``, ``--soak-cells`` and ``--soak-pictures``."""
    parser.addoption("--soak-guests", type=int, default=500, help="guests that are restored in one process: 500")
    parser.addoption("--soak-cells", type=int, default=2000, help="cells that are measured in one process: 2000")
    parser.addoption("--soak-pictures", type=Path, help="the folder that pictures of what was held are written to")


@pytest.fixture
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all that the lab writes to: temporary files, results, and a cache that has the user's by links.

    Saved guests, locks and slots are the test's own, so that no other process changes their number.
    """
    cache = tmp_path / "cache"
    for name in ("cache", "lab", "temporary"):
        (tmp_path / name).mkdir()
    for folder in cache_dir().iterdir():
        if folder.is_dir() and folder.name not in {"locks", "damaged", "slots", saved_guests.KIND}:
            (cache / folder.name).symlink_to(folder)
    monkeypatch.setenv("ORCHESTRATOR_CACHE", str(cache))
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path
