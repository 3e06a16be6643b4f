# SPDX-License-Identifier: GPL-2.0-only
"""A measured series as tables, a cover letter's table, mails and JSON: golden files, and what each must say."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from email import message_from_string, policy
from pathlib import Path

import pytest
from record_builders import cell, failed
from report_text import check_golden
from rich.console import Console
from stored_profiles import profile, record, store_run

from orchestrator.comparison.series import (
    MeasuredCommit,
    MeasuredSeries,
    cover_letter,
    mail,
    series_sheets,
)
from orchestrator.comparison.series_json import PrintedSeries
from orchestrator.library.stored import compared_runs
from orchestrator.report.text import print_sheets
from orchestrator.results.budgets import Budgets
from orchestrator.results.commit_heads import Commit, SeriesCommit
from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import Run, find_run
from orchestrator.results.statistics import median

PLAIN = {"callbench": 12, "do_getpid": 88}
PROBED = {**PLAIN, "kprobe_int3_handler": 40}


@pytest.fixture
def measured(tmp_path: Path) -> MeasuredSeries:
    """Five commits: none changes the baseline, one makes the probe regress, one is its revert, one does not build."""
    lab = tmp_path / "lab"

    def stored(name: str, probed: Mapping[str, int] | None) -> Run:
        folder = tmp_path / name
        plain = record(profile("t/none/noop", PLAIN), "none", folder)
        if probed is None:
            other_cell = failed("kprobe", "/clone/k.c:3: the module does not build", id="t/kprobe/noop")
        else:
            other_cell = record(profile("t/kprobe/noop", probed), "kprobe", folder)
        return find_run(store_run(lab, folder, plain, other_cell), lab)

    def commit(number: int, subject: str, reverts: str = "") -> SeriesCommit:
        return SeriesCommit(
            Commit(f"{number:x}" * 40, subject, "Zoë Person", "2026-11-26"), "zoe@example.org", reverts=reverts
        )

    base, regressed = stored("base", PROBED), stored("regressed", {**PROBED, "kprobe_int3_handler": 47, "new_check": 4})
    commits = [
        MeasuredCommit(commit(1, "the base"), base),
        MeasuredCommit(commit(2, "Documentation: say more"), base, same_as="1" * 12),
        MeasuredCommit(commit(3, "kprobes: check each hit"), regressed),
        MeasuredCommit(
            commit(4, "kprobes: " + "a long subject " * 5), None, "the kernel does not build\nk.c:1: error: no"
        ),
        MeasuredCommit(commit(5, "kprobes: break a module"), stored("broken", None)),
        MeasuredCommit(commit(6, 'Revert "kprobes: check each hit"', reverts="3" * 40), stored("back", PROBED)),
    ]
    return MeasuredSeries(commits, Budgets.of({"*": "+5"}), Path("my.yaml"), Path("/clone"))


def test_the_tables(measured: MeasuredSeries) -> None:
    out = io.StringIO()
    print_sheets(series_sheets(measured), Console(file=out, width=110, color_system=None))
    check_golden("series.txt", out.getvalue())


def test_a_cell_of_other_work_is_not_compared_and_the_row_says_why(measured: MeasuredSeries, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    found = (record(profile(f"t/{probe}/noop", PROBED), probe, folder) for probe in ("none", "kprobe"))
    cells = [one.model_copy(update={"benchmark": "other"}) for one in found]
    other_run = find_run(store_run(tmp_path / "lab", folder, *cells), tmp_path / "lab")
    commits = [*measured.commits[:2], replace(measured.commits[2], run=other_run)]
    out = io.StringIO()
    print_sheets(series_sheets(replace(measured, commits=commits)), Console(file=out, width=140, color_system=None))
    assert out.getvalue().count("different benchmarks: ") == 2
    assert "Equal in all commits" not in out.getvalue()


def test_a_cell_that_the_base_lacks_is_said_to_be_new(measured: MeasuredSeries, tmp_path: Path) -> None:
    folder = tmp_path / "more"
    added = [record(profile(f"t/{probe}/noop", PROBED), probe, folder) for probe in ("none", "kprobe", "jprobe")]
    run = find_run(store_run(tmp_path / "lab", folder, *added), tmp_path / "lab")
    whole = replace(measured, commits=[*measured.commits[:2], replace(measured.commits[2], run=run)])
    assert list(whole.new) == ["t/jprobe/noop"]
    sentences = [sentence for sheet in series_sheets(whole) for sentence in sheet.sentences]
    assert "2/2 adds t/jprobe/noop, 140 instructions: the base has nothing to compare it with." in sentences


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
    odd = SeriesCommit(replace(measured.commits[2].commit, author="=?utf-8?q?x=0ABcc:_b?= ,"), email)
    commits = [*measured.commits[:2], replace(measured.commits[2], in_series=odd)]
    text = mail(replace(measured, commits=commits))
    assert text is not None
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    assert message["To"] is None
    assert message["Bcc"] is None
    named = SeriesCommit(odd.commit, "a@example.org")
    text = mail(replace(measured, commits=[*measured.commits[:2], replace(measured.commits[2], in_series=named)]))
    assert text is not None
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    assert [address.addr_spec for address in message["To"].addresses] == ["a@example.org"]
    assert message["Bcc"] is None


def test_a_base_without_one_of_its_numbers_is_wrong(measured: MeasuredSeries) -> None:
    broken = measured.commits[4]
    series = replace(measured, commits=[broken, *measured.commits[1:3]], budgets=None)
    assert [cell.id for cell in series.failed] == ["t/kprobe/noop"]
    assert series.is_wrong
    assert "The base has no number of t/kprobe/noop" in " ".join(series_sheets(series)[-1].sentences)
    assert "The base has no number of t/kprobe/noop" in cover_letter(series)


def test_json_has_each_commit_with_its_changes(measured: MeasuredSeries) -> None:
    found = json.loads(PrintedSeries.of(measured).json_text())
    assert found["wrong"] is True
    assert [one["reason"] for one in found["commits"]][2].startswith("the kernel does not build")
    assert found["commits"][0]["same_kernel_as"] == "1" * 12
    regressed = found["commits"][1]["cells"][1]
    assert (regressed["change"], len(regressed["exceeded"])) == (11, 1)
    assert [(one["symbol"], one["change"]) for one in regressed["symbols"]] == [
        ("kprobe_int3_handler", 7),
        ("new_check", 4),
    ]


def test_a_series_is_wrong_by_its_gate_alone(measured: MeasuredSeries) -> None:
    first = measured.commits[:3]
    gates = [(None, False), (Budgets.of({"*": "+11"}), False), (Budgets.of({"*": "+10"}), True)]
    for budgets, is_wrong in gates:
        assert MeasuredSeries(first, budgets, Path("my.yaml"), Path("/clone")).is_wrong is is_wrong


def timed(samples: Sequence[float], id_: str) -> CellRecord:
    numbers = {"samples": samples, "value": median(samples), "overhead": 0.0, "interval": None}
    return cell("none", id=id_, clock="wall", unit="ns", **numbers)


FLAT = [790.0 + n / 10 for n in range(8)]
NOISE = [788.0, 1093.0]
HIGHER = [1090.0 + n / 10 for n in range(8)]


@pytest.fixture
def units(tmp_path: Path) -> Callable[..., MeasuredSeries]:
    """A series whose commits have a counted cell, 100 instructions each, and a timed one with these samples."""

    def stored(*timed_samples: Sequence[float], counted: Sequence[int] = ()) -> MeasuredSeries:
        commits = []
        for number, samples in enumerate(timed_samples):
            folder = tmp_path / f"units{number}"
            profiled = {"callbench": 12, "do_getpid": 88 + (counted[number] if counted else 0)}
            cells = [
                record(profile("t/counted/none/noop", profiled), "none", folder),
                timed(samples, "t/timed/none/noop"),
            ]
            run = find_run(store_run(tmp_path / "lab", folder, *cells), tmp_path / "lab")
            commit = Commit(f"{number + 1:x}" * 40, f"commit {number}", "A Person", "2026-11-28")
            commits.append(MeasuredCommit(SeriesCommit(commit, "a@example.org"), run))
        return MeasuredSeries(commits, None, Path("units.yaml"), Path("/clone"))

    return stored


def tables(measured: MeasuredSeries) -> str:
    out = io.StringIO()
    print_sheets(series_sheets(measured), Console(file=out, width=160, color_system=None))
    return out.getvalue()


def test_each_unit_and_clock_has_a_table_of_its_own_in_the_cover_letter(units: Callable[..., MeasuredSeries]) -> None:
    measured = units(FLAT, HIGHER)
    text = cover_letter(measured)
    assert max(map(len, text.splitlines())) <= 72
    check_golden("series-cover-units.txt", text + "\n")
    text = tables(measured)
    assert "cost per call in nsec of the wall clock; each commit" in text
    assert "+300" in text


def test_noise_of_the_wall_clock_is_no_change_in_any_form(units: Callable[..., MeasuredSeries]) -> None:
    measured = units(NOISE, [1093.0, 1094.6])
    step = measured.steps[0]
    change = step.change("t/timed/none/noop")
    assert change is not None
    assert change.change == "undecided"
    assert mail(measured) is None
    for text in (cover_letter(measured), tables(measured)):
        assert "+" not in text.replace("[+", "")
        assert "?" in text
        assert "no verdict: found 2 and 2 samples" in " ".join(text.split())
    timed_cell = json.loads(PrintedSeries.of(measured).json_text())["commits"][0]["cells"][1]
    assert (timed_cell["verdict"], timed_cell["unit"], timed_cell["clock"]) == ("undecided", "ns", "wall")
    assert timed_cell["of_base"]["verdict"] == "undecided"
    assert "no verdict" in timed_cell["why"]


def test_values_within_the_scatter_are_equal_in_any_form(units: Callable[..., MeasuredSeries]) -> None:
    measured = units(FLAT, [one + 0.05 for one in reversed(FLAT)])
    assert mail(measured) is None
    assert "+" not in cover_letter(measured)
    assert "Equal in all commits: counted, timed." in tables(measured)
    timed_cell = json.loads(PrintedSeries.of(measured).json_text())["commits"][0]["cells"][1]
    assert (timed_cell["verdict"], timed_cell["of_base"]["verdict"]) == ("unchanged", "unchanged")


def test_a_decided_time_is_a_change_in_every_form(units: Callable[..., MeasuredSeries]) -> None:
    measured = units(FLAT, HIGHER)
    text = mail(measured)
    assert text is not None
    assert "+300 nsec (+37.96 %) in timed" in " ".join(text.split())
    assert "The figures are medians of times." in text
    assert all("+300" in one for one in (cover_letter(measured), tables(measured)))
    timed_cell = json.loads(PrintedSeries.of(measured).json_text())["commits"][0]["cells"][1]
    assert (timed_cell["verdict"], round(timed_cell["change"])) == ("regressed", 300)


def test_a_mail_on_cells_of_several_units_names_them(units: Callable[..., MeasuredSeries]) -> None:
    text = mail(units(FLAT, HIGHER, counted=(0, 11)))
    assert text is not None
    message = message_from_string(text.partition("\n")[2], policy=policy.default)
    body = " ".join(message.get_content().split())
    assert "counted, instructions 100 111 +11" in body
    assert "timed, nsec" in body
    assert "The figures are medians of times, and counts of executed instructions, equal in each run." in body


def test_one_of_many_timed_cells_may_differ_by_chance(tmp_path: Path) -> None:
    """As in `compare` of the same runs, a commit's cells are judged together."""
    one, other = [float(n) for n in (100, 101, 102, 103, 104, 105)], [float(n) for n in (104, 105, 106, 107, 108, 109)]
    runs = []
    for number, samples in enumerate((one, other)):
        cells = [timed(samples, "t/0/noop")]
        cells += [timed(one, f"t/{place}/noop") for place in range(1, 40)]
        runs.append(find_run(store_run(tmp_path / "lab", tmp_path / f"many{number}", *cells), tmp_path / "lab"))
    commits = [
        MeasuredCommit(SeriesCommit(Commit(str(number) * 40, "it", "A", "2026-11-28"), ""), run)
        for number, run in enumerate(runs, 1)
    ]
    measured = MeasuredSeries(commits, None, Path("my.yaml"), Path("/clone"))
    judged = compared_runs(runs[0], runs[1]).comparison
    found = {change.pair.first.id: change.change for change in measured.steps[0].changes}
    assert found == {change.pair.first.id: change.change for change in judged.cells}
    assert found["t/0/noop"] == "undecided"
    assert mail(measured) is None


def test_a_reason_has_no_path_of_the_lab_s_clone(measured: MeasuredSeries) -> None:
    broken = replace(measured.commits[3], reason="the kernel does not build\n/clone/k.c:1: error: no")
    found = json.loads(PrintedSeries.of(replace(measured, commits=[*measured.commits[:3], broken])).json_text())
    assert found["commits"][-1]["reason"] == "the kernel does not build\nk.c:1: error: no"
