# SPDX-License-Identifier: GPL-2.0-only
"""Does ``history`` print what docs/history.md shows, of the runs that it describes?"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest
from documentation import ROOT, blocks
from stored_histories import broken, counted, store_days
from typer.testing import CliRunner

from orchestrator.cli.main import app

SHOWN = "quickstart:pentium4"


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [counted(1034.0)] * 20 + [counted(1048.0)] * 5 + [broken()] + [counted(1048.0)] * 15
    with patch("orchestrator.results.store.secrets") as chance:
        chance.token_hex.return_value = "1f3a"
        store_days(tmp_path, days, {20: "6.1.176-1"})
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("orchestrator.program.PROGRAM", "./lab")  # as the page calls it
    printed = CliRunner().invoke(app, ["history", "quickstart:kprobe"]).stdout
    (shown,) = [block.text for block in blocks(ROOT / "docs" / "history.md") if block.text.startswith(SHOWN)]
    assert printed.splitlines() == shown.splitlines()
