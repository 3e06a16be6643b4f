# SPDX-License-Identifier: GPL-2.0-only
"""Does a run that nothing can be compared with get the message of ``golden/wrong``, and does each baseline stay?"""

from __future__ import annotations

from pathlib import Path

from golden_messages import check_messages
from made_labs import make_lab

from orchestrator.results.store import Store


def test_messages_are_as_in_the_golden_file(tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    make_lab(lab)
    with Store.open(lab) as store:
        before = store.baselines(), [entry.id for entry in store.runs()]
    check_messages("baseline", tmp_path)
    with Store.open(lab) as store:
        assert (store.baselines(), [entry.id for entry in store.runs()]) == before
