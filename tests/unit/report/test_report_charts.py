# SPDX-License-Identifier: GPL-2.0-only
"""Charts as files: their names, their bytes, and what is needed to draw them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from drawn_charts import bar_charts
from record_builders import COUNTS, cell, mail_table, noop_list, recording_list, run

from orchestrator.benchmarks.registry import reports
from orchestrator.errors import HostError
from orchestrator.report.kind import draw_charts

PNG = b"\x89PNG\r\n\x1a\n"


def test_charts_are_named_after_their_tables_and_never_overwrite_each_other() -> None:
    plain = [cell(probe) for probe in COUNTS]
    others = [cell(probe, id=f"smp/{probe}", smp=2) for probe in COUNTS]
    names = list(bar_charts(run(*recording_list("list12"), *plain, *others)))
    assert names == ["list12", "pentium4-debian-686-noop", "pentium4-debian-686-noop-2"]


def test_equal_results_give_equal_files(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    record = run(*noop_list("list7"), *mail_table("x86-32"), *mail_table("x86-64"))
    files = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        drawn = draw_charts(record, tmp_path / name, reports())
        assert [path.name for path in drawn] == [
            "list7.png",
            "list7.svg",
            "jump-optimization-2009.png",
            "jump-optimization-2009.svg",
        ]
        assert {path.parent for path in drawn} == {tmp_path / name / "charts"}
        files.append([path.read_bytes() for path in drawn])
    assert files[0] == files[1]
    assert files[0][0].startswith(PNG)
    assert b"<svg" in files[0][1]
    assert b"<dc:date>" not in files[0][1]


def test_without_matplotlib_the_error_has_the_install_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # what an import of a module that is not there meets
    with pytest.raises(HostError, match=r"pip install 'probe-lab\[plots\]'"):
        draw_charts(run(*noop_list("list5")), tmp_path, reports())
    assert list(tmp_path.iterdir()) == []
