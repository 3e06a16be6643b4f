# SPDX-License-Identifier: GPL-2.0-only
"""Do imports point one way, as pyproject.toml requires: no kind of benchmark in the core, no guest in a report?"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[2]


def test_every_contract_is_kept(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.syspath_prepend(os.fspath(ROOT))
    status = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
