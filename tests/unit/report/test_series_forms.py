# SPDX-License-Identifier: GPL-2.0-only
"""A measured series as tables, a cover letter's table, mails and JSON: golden files, and what each must say."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import replace
from email import message_from_string, policy
from pathlib import Path

import pytest
from record_builders import failed
from report_text import check_golden
from rich.console import Console
from stored_profiles import profile, record, store_run

from orchestrator.comparison.series import (
    MeasuredCommit,
    MeasuredSeries,
    cover_letter,
    mail,
    series_json,
    series_sheets,
)
from orchestrator.report.text import print_sheets
from orchestrator.results.budgets import Budgets
from orchestrator.results.origin import Commit, SeriesCommit
from orchestrator.results.runs import Run, find_run

PLAIN = {"callbench": 12, "do_getpid": 88}
PROBED = {**PLAIN, "kprobe_int3_handler": 40}


@pytest.fixture
def measured(tmp_path: Path) -> MeasuredSeries:
    """Five commits: none changes the baseline, one makes the probe dearer, one is its revert, one does not build."""
    lab = tmp_path / "lab"

    def stored(name: str, probed: Mapping[str, int] | None) -> Run:
        folder = tmp_path / name
        plain = record(profile("t/none/noop", PLAIN), "none", folder)
        if probed is None:
            other = failed("kprobe", "/clone/k.c:3: the module does not build", id="t/kprobe/noop")
        else:
            other = record(profile("t/kprobe/noop", probed), "kprobe", folder)
        return find_run(store_run(lab, folder, plain, other), lab)

    def commit(number: int, subject: str, reverts: str = "") -> SeriesCommit:
        return SeriesCommit(
            Commit(f"{number:x}" * 40, subject, "Zoë Person", "2026-11-26"), "zoe@example.org", reverts=reverts
        )

    base, dearer = stored("base", PROBED), stored("dearer", {**PROBED, "kprobe_int3_handler": 47, "new_check": 4})
    found = [
        MeasuredCommit(commit(1, "the base"), base),
        MeasuredCommit(commit(2, "Documentation: say more"), base, same_as="1" * 12),
        MeasuredCommit(commit(3, "kprobes: check each hit"), dearer),
        MeasuredCommit(
            commit(4, "kprobes: " + "a long subject " * 5), None, "the kernel does not build\nk.c:1: error: no"
        ),
        MeasuredCommit(commit(5, "kprobes: break a module"), stored("broken", None)),
        MeasuredCommit(commit(6, 'Revert "kprobes: check each hit"', reverts="3" * 40), stored("back", PROBED)),
    ]
    return MeasuredSeries(found, Budgets.of({"*": "+5"}), Path("my.yaml"), Path("/clone"))


def test_the_tables(measured: MeasuredSeries) -> None:
    out = io.StringIO()
    print_sheets(series_sheets(measured), Console(file=out, width=110, color_system=None))
    check_golden("series.txt", out.getvalue())


def test_a_cell_of_other_work_is_not_compared_and_the_row_says_why(measured: MeasuredSeries, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    found = (record(profile(f"t/{probe}/noop", PROBED), probe, folder) for probe in ("none", "kprobe"))
    cells = [one.model_copy(update={"benchmark": "other"}) for one in found]
    other = find_run(store_run(tmp_path / "lab", folder, *cells), tmp_path / "lab")
    commits = [*measured.commits[:2], replace(measured.commits[2], run=other)]
    out = io.StringIO()
    print_sheets(series_sheets(replace(measured, commits=commits)), Console(file=out, width=140, color_system=None))
    assert out.getvalue().count("different benchmarks: ") == 2
    assert "Equal in all commits" not in out.getvalue()


def test_the_cover_letter_is_ascii_and_72_columns_wide(measured: MeasuredSeries) -> None:
    text = cover_letter(measured)
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 72
    check_golden("series-cover.txt", text + "\n")


def test_each_author_of_a_dearer_commit_gets_a_mail(measured: MeasuredSeries) -> None:
    text = mail(measured)
    assert text is not None
    assert text.count("\nSubject: ") == 1
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    assert message["To"].addresses[0].addr_spec == "zoe@example.org"
    assert "+11 instructions (+7.86 %) in kprobe" in message["Subject"]
    check_golden("series-mail.txt", text.partition("Measured by:")[0])


def test_without_a_dearer_commit_there_is_no_mail(measured: MeasuredSeries) -> None:
    assert mail(MeasuredSeries(measured.commits[:2], None, Path("my.yaml"), Path("/clone"))) is None


@pytest.mark.parametrize("email", ["", "a@b,other@c", "a@b>,<other@c"])
def test_an_author_s_odd_address_is_no_recipient(measured: MeasuredSeries, email: str) -> None:
    odd = SeriesCommit(replace(measured.commits[2].one.commit, author="=?utf-8?q?x=0ABcc:_b?= ,"), email)
    commits = [*measured.commits[:2], replace(measured.commits[2], one=odd)]
    text = mail(replace(measured, commits=commits))
    assert text is not None
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    assert message["To"] is None
    assert message["Bcc"] is None
    named = SeriesCommit(odd.commit, "a@example.org")
    text = mail(replace(measured, commits=[*measured.commits[:2], replace(measured.commits[2], one=named)]))
    assert text is not None
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    assert [one.addr_spec for one in message["To"].addresses] == ["a@example.org"]
    assert message["Bcc"] is None


def test_a_base_without_one_of_its_numbers_is_wrong(measured: MeasuredSeries) -> None:
    broken = measured.commits[4]
    found = replace(measured, commits=[broken, *measured.commits[1:3]], budgets=None)
    assert [cell.id for cell in found.failed] == ["t/kprobe/noop"]
    assert found.is_wrong
    assert "The base has no number of t/kprobe/noop" in " ".join(series_sheets(found)[-1].sentences)


def test_json_has_each_commit_with_its_changes(measured: MeasuredSeries) -> None:
    found = json.loads(series_json(measured))
    assert found["wrong"] is True
    assert [one["reason"] for one in found["commits"]][2].startswith("the kernel does not build")
    assert found["commits"][0]["same_kernel_as"] == "1" * 12
    dearer = found["commits"][1]["cells"][1]
    assert (dearer["change"], len(dearer["beyond"])) == (11, 1)
    assert [(one["symbol"], one["change"]) for one in dearer["symbols"]] == [
        ("kprobe_int3_handler", 7),
        ("new_check", 4),
    ]


def test_a_series_is_wrong_by_its_gate_alone(measured: MeasuredSeries) -> None:
    first = measured.commits[:3]
    gates = [(None, False), (Budgets.of({"*": "+11"}), False), (Budgets.of({"*": "+10"}), True)]
    for budgets, is_wrong in gates:
        assert MeasuredSeries(first, budgets, Path("my.yaml"), Path("/clone")).is_wrong is is_wrong
