# SPDX-License-Identifier: GPL-2.0-only
"""Does a run that nothing can be compared with get the message of ``golden/wrong``, and does each baseline stay?"""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest
from golden_messages import check_messages
from stored_histories import counted, store_days, timed

from orchestrator.results.store import Store


def made_lab(lab: Path) -> None:
    """A lab with four runs of a day each, whose ids depend on nothing else, and names for three."""
    numbers = iter(range(100))
    days = [counted(1036), counted(1050), counted(1050), timed(1050)]
    with patch("orchestrator.results.store.secrets.token_hex", lambda _: f"{next(numbers):04x}"):
        runs = store_days(lab, days)
        with patch("stored_histories.EXPERIMENT", "other"):
            other = store_days(lab, [counted(7, id="pentium4/debian-686/own/noop")])
    with Store.open(lab) as store:
        for name, run in {"good": runs[0], "timed": runs[3], "other": other[0]}.items():
            store.set_baseline(name, run)


def test_messages_are_as_in_the_golden_file(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    lab = tmp_path / "lab"
    made_lab(lab)
    shutil.rmtree(lab / "runs")  # all that is compared is in the store, and a wrong input makes no run's directory
    with Store.open(lab) as store:
        before = store.baselines(), [entry.id for entry in store.runs()]
    check_messages("baseline", tmp_path, request.config)
    with Store.open(lab) as store:
        assert (store.baselines(), [entry.id for entry in store.runs()]) == before
