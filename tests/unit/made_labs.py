# SPDX-License-Identifier: GPL-2.0-only
"""A lab with some runs, for what people name wrongly of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

from stored_histories import counted, store_days, timed

from orchestrator.results.store import Store


def make_lab(lab: Path) -> None:
    """Make a lab with four runs of a day each and one of another experiment, and names for three.

    Their ids depend on nothing else. All that is compared is in the store: they have no directories, so that a test
    sees what makes one.
    """
    numbers = iter(range(100))
    days = [counted(1036), counted(1050), counted(1050), timed(1050)]
    with patch("orchestrator.results.store.secrets.token_hex", lambda _: f"{next(numbers):04x}"):
        runs = store_days(lab, days)
        with patch("stored_histories.EXPERIMENT", "other"):
            other = store_days(lab, [counted(7, id="pentium4/debian-686/own/noop")])
    with Store.open(lab) as store:
        for name, run in {"good": runs[0], "timed": runs[3], "other": other[0]}.items():
            store.set_baseline(name, run)
    shutil.rmtree(lab / "runs")
