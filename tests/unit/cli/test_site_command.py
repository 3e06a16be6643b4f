# SPDX-License-Identifier: GPL-2.0-only
"""Does ``site`` build one, say where it is, and refuse what is none?"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest
from stored_histories import store_days, timed
from stored_sites import six_days
from typer.testing import CliRunner, Result

from orchestrator.cli.main import app

pytestmark = pytest.mark.usefixtures("lab")


def orchestrator(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["site", *map(str, arguments)])


def test_it_prints_the_first_page_and_what_was_done(lab: Path, tmp_path: Path) -> None:
    six_days(lab)
    made = orchestrator(tmp_path / "site")
    assert (made.exit_code, made.stdout) == (0, f"{tmp_path / 'site' / 'index.html'}\n")
    assert made.stderr == "11 pages, 11 written, 0 removed\n"
    assert orchestrator(tmp_path / "site", "--runs", "2").stderr.endswith(", 4 removed\n")


def test_wrong_use_of_site_is_refused(lab: Path, tmp_path: Path) -> None:
    assert (orchestrator(tmp_path / "site").exit_code, (tmp_path / "site").exists()) == (2, False)
    six_days(lab)
    refused = orchestrator(lab)
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert "is not a site" in refused.stderr
    assert orchestrator(tmp_path / "site", "--runs", "0").exit_code == 2
    assert orchestrator().exit_code == 2


def test_a_missing_library_is_a_warning(lab: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(3)
    store_days(lab, [timed(round(chance.gauss(centre, 8), 1)) for centre in [1000] * 15 + [1200] * 15])
    monkeypatch.setitem(sys.modules, "ruptures", None)
    made = orchestrator(tmp_path / "site", "--runs", "1")  # all runs are in the histories, one has a page
    assert made.exit_code == 0
    assert "warning: steps of times need ruptures: pip install 'probe-lab[statistics]'" in made.stderr
