# SPDX-License-Identifier: GPL-2.0-only
"""Does a night say how it went, the same in each form, first what is wrong, and what to do about it?"""

from __future__ import annotations

import email
import email.policy
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.message import EmailMessage
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest
from junitparser import TestSuite
from record_builders import cell, failed
from report_text import check_golden
from stored_profiles import profile, store_run
from stored_profiles import record as profile_record

from orchestrator.benchmarks.registry import reports
from orchestrator.errors import HostError
from orchestrator.library.nightly_report import NightlyReport
from orchestrator.library.stored import load_comparison
from orchestrator.nightly.mail import nightly_mail, unmeasured_mail
from orchestrator.nightly.night import NightlyResult, repeatability, subject, summary_lines
from orchestrator.nightly.night_json import NightReport, UnmeasuredNight
from orchestrator.nightly.webhook import Webhook
from orchestrator.report.junit_export import render_junit, unmeasured_junit
from orchestrator.results.contract import CellRecord
from orchestrator.results.recorded_provenance import RecordedProvenance
from orchestrator.results.runs import Run, find_run

NOW = datetime(2026, 11, 22, 2, 40, tzinfo=UTC)
PROVENANCE = RecordedProvenance.model_validate(
    {
        "sessions": [{"qemu": "QEMU 7.2.22", "compiler": "gcc 12.2.0", "guests": "Debian 12", "host": {"cpus": "2"}}],
        "boots": [{"kernel": {"name": "debian-686", "release": "6.1.0-50-686"}}],
    }
)
FILE, HOST = "/home/me/nights/x.yaml", "lab1"
MakeNight = Callable[..., NightlyResult]


def regressed(value: float) -> CellRecord:
    return cell("kprobe", samples=[value] * 2, value=value, overhead=value - 409, interval=[value - 409] * 2)


@pytest.fixture
def make_night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakeNight:
    """Makes a night of cells, compared with a good one of other cells."""
    lab = tmp_path / "lab"
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(lab))

    folders = (tmp_path / f"run{number}" for number in count())

    def make(good: Sequence[CellRecord], cells: Sequence[CellRecord], **changes: Any) -> NightlyResult:
        runs = [store_run(lab, next(folders), *part) for part in (good, cells)]
        return replace(NightlyResult(find_run(runs[1], lab), FILE, load_comparison(runs, [])), **changes)

    return make


def lines(night: NightlyResult) -> list[str]:
    return list(summary_lines(night, reports()))


def mail(night: NightlyResult) -> EmailMessage:
    text = nightly_mail(night, PROVENANCE, reports(), NOW)
    message = email.message_from_string(text, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    return message


@pytest.fixture
def bad(make_night: MakeNight) -> NightlyResult:
    good = [cell("none"), cell("kprobe"), cell("jprobe"), cell("djprobe")]
    return make_night(good, [cell("none"), regressed(1046.0), failed("jprobe", "the probe was not hit")])


def test_a_bad_night_says_first_what_is_wrong(bad: NightlyResult) -> None:
    assert not bad.is_good
    said = lines(bad)
    assert said[0] == "x: bad, cells: 2 ok, 1 failed"
    assert said[1].endswith("4 cells compared: 1 failed, 1 missing, 1 regressed, 1 unchanged; 3 exceed their budget.")
    assert said[2:5] == [
        "budget exceeded: jprobe failed",
        "budget exceeded: djprobe missing",
        "budget exceeded: kprobe +10 instructions (+1.0 %)",
    ]


def test_what_exceeds_its_budget_can_be_measured_again(bad: NightlyResult) -> None:
    (again,) = [
        shlex.split(line.removeprefix("reproduce: "))
        for line in lines(bad)
        if line.startswith("reproduce: orch") and " run " in line
    ]
    assert again[:2] == ["orchestrator", "run"]
    assert again[3:] == [
        "--only",
        f"id={regressed(1).id.replace('kprobe', 'jprobe')}",
        "--only",
        f"id={regressed(1).id}",
    ]
    assert Path(again[2]).parent == bad.run.directory


def test_a_dearer_night_may_be_accepted_and_a_failed_one_may_not(make_night: MakeNight, bad: NightlyResult) -> None:
    night = make_night([cell("none"), cell("kprobe")], [cell("none"), regressed(1046.0)])
    accepting = f"orchestrator compare --set-baseline good-x {night.run.record.run}"
    assert lines(night)[-1] == f"accept: {accepting}"
    assert not [line for line in lines(bad) if line.startswith("accept")]


def test_a_good_night_is_short(make_night: MakeNight) -> None:
    night = make_night([cell("none"), cell("kprobe")], [cell("none"), cell("kprobe")])
    assert night.is_good
    assert subject(night) == "[x] good: 2 unchanged"
    assert not [line for line in lines(night) if line.startswith(("budget exceeded", "reproduce", "accept"))]


def test_a_cheaper_night_is_good(make_night: MakeNight) -> None:
    night = make_night([cell("none"), cell("kprobe")], [cell("none"), regressed(1000.0)])
    assert night.is_good
    assert subject(night) == "[x] good: 1 improved, 1 unchanged"


def test_the_first_night_is_compared_with_nothing(make_night: MakeNight) -> None:
    night = replace(make_night([cell("none")], [cell("none")]), compared=None)
    assert night.is_good
    assert lines(night)[1] == "There is no earlier good run to compare with."
    assert subject(night) == "[x] good: 1 cell"


def test_a_night_without_any_number_is_not_good(make_night: MakeNight) -> None:
    cells = [failed("none", "no such probe", status="unsupported")]
    night = replace(make_night([cell("none")], cells), compared=None)
    assert not night.is_good


def test_a_night_is_not_good_by_a_cell_that_nobody_can_judge(make_night: MakeNight) -> None:
    """It failed before, or made other work."""
    fixed = make_night([cell("none"), failed("kprobe", "panic")], [cell("none"), cell("kprobe")])
    other_result = make_night([cell("none"), cell("kprobe")], [cell("none"), cell("kprobe", metric="cost per loop")])
    for night, words in ((fixed, "1 without a number before"), (other_result, "1 not compared")):
        assert not night.is_good
        assert words in lines(night)[1]
        assert lines(night)[-1].startswith("accept: ")


@pytest.mark.parametrize(
    "changes",
    [{"not_compared": "scipy is missing"}, {"compared": None, "not_compared": "they have no comparable cells"}],
)
def test_a_night_that_cannot_be_compared_is_not_good(make_night: MakeNight, changes: dict[str, Any]) -> None:
    night = replace(make_night([cell("none")], [cell("none")]), compared=None, not_compared=changes["not_compared"])
    assert not night.is_good
    assert changes["not_compared"] in lines(night)[1]
    assert lines(night)[-1].startswith("accept: ")


def test_a_night_without_all_its_cells_is_not_good(make_night: MakeNight) -> None:
    night = make_night([cell("none")], [cell("none")])
    unfinished = replace(night, run=Run(night.run.record, night.run.directory, 3))
    assert not unfinished.is_good
    assert lines(unfinished)[0] == "x: bad, cells: 1 ok, 3 planned"


def test_the_mail_is_one(bad: NightlyResult) -> None:
    message = mail(bad)
    assert message["Subject"] == "[x] bad: 1 failed, 1 missing, 1 regressed, 1 unchanged; jprobe failed"
    assert message["Date"].datetime == NOW
    text = message.get_content()
    assert text.isascii()
    for part in (
        "kprobe   ",
        "Failed:",
        "QEMU 7.2.22",
        "debian-686: 6.1.0-50-686",
        "pentium4, 1 CPU",
        "0 instructions",
    ):
        assert part in text
    prose = [line for line in text.splitlines() if "orchestrator" not in line and str(bad.run.directory) not in line]
    assert max(map(len, prose)) <= 100


def test_the_mail_is_as_expected(bad: NightlyResult) -> None:
    text = nightly_mail(bad, PROVENANCE, reports(), NOW)
    for run, name in ((bad.run.record.run, "RUN"), (str(bad.run.directory), "DIRECTORY")):
        text = text.replace(run, name)
    assert bad.compared is not None
    text = text.replace(bad.compared.before.record.run, "GOOD")
    check_golden("night.eml", text)


def test_what_a_guest_says_makes_no_header(make_night: MakeNight) -> None:
    night = make_night([cell("none")], [failed("none", "first\nBcc: everybody@example.org\n\nbody ü\nTo: a@b")])
    message = mail(night)
    assert set(message.keys()) == {"Subject", "Date", "Content-Type", "Content-Transfer-Encoding", "MIME-Version"}


def test_equal_runs_differ_by_nothing_on_the_exact_clock(make_night: MakeNight) -> None:
    steps = cell("djprobe", metric="cost per probe", samples=[400.0, 524.0])
    night = make_night([cell("none")], [cell("none"), cell("kprobe"), steps])
    samples = sum(len(one.samples) for one in night.run.record.cells[:2])
    assert list(repeatability(night)) == [f"calls and loops: 0 instructions, in {samples} samples of 2 cells"]


def test_json_has_what_the_mail_has(bad: NightlyResult) -> None:
    content = json.loads(NightReport.of(bad, HOST).json_text())
    assert content["text"].splitlines()[0] == subject(bad)
    assert (content["night"], content["cells"]) == ("bad", {"ok": 2, "failed": 1})
    assert content["counts"] == {"failed": 1, "missing": 1, "regressed": 1, "unchanged": 1}
    assert [one["change"] for one in content["exceeded"]] == ["failed", "missing", "regressed"]
    assert content["failed"] == [{"cell": bad.failed[0].id, "reason": "the probe was not hit"}]


def test_what_regressed_is_named_by_its_symbol(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_night: MakeNight
) -> None:
    """In the subject, the summary and the JSON, with the experiment."""
    lab = tmp_path / "lab"
    counts = [{"vfs_read": 5, "handler": executed, "helper": 10 - executed // 5} for executed in (20, 30)]
    runs = []
    for number, by_symbol in enumerate(counts):
        folder = tmp_path / f"profiled{number}"
        made = profile("x/kprobe", by_symbol)
        runs.append(store_run(lab, folder, profile_record(made, "kprobe", folder)))
    night = NightlyResult(find_run(runs[1], lab), FILE, load_comparison(runs, []))
    where = "most in handler +10"
    assert where in subject(night)
    assert any(line.startswith("budget exceeded: ") and where in line for line in lines(night))
    assert f"x: {FILE}" in mail(night).get_content()
    content = NightReport.of(night, HOST).model_dump(mode="json")
    assert (content["file"], content["exceeded"][0]["symbol"]["symbol"]) == (FILE, "handler")
    # Without profiles there is none.
    night = make_night([cell("kprobe")], [regressed(1046.0)])
    assert "most in" not in subject(night)
    assert NightReport.of(night, HOST).model_dump(mode="json")["exceeded"][0]["symbol"] is None


def test_a_large_night_is_told_in_bounds(make_night: MakeNight) -> None:
    cells = [cell("kprobe", id=f"a/{number}") for number in range(300)]
    night = make_night(cells, [regressed(1046.0).model_copy(update={"id": one.id}) for one in cells])
    content = NightReport.of(night, HOST).model_dump(mode="json")
    assert (len(content["exceeded"]), content["counts"]) == (20, {"regressed": 300})
    assert len(lines(night)) < 30
    assert len(mail(night).get_content().splitlines()) < 120


def test_junit_fails_what_exceeds_its_budget(bad: NightlyResult) -> None:
    exceeded = {change.pair.first.id: change.exceeded for change in bad.exceeded}
    suite = TestSuite.fromstring(render_junit(bad.run.record, PROVENANCE, {}, exceeded))
    assert (suite.tests, suite.failures, suite.errors) == (4, 3, 0)
    wrong = {case.name.split("/")[2]: case.result[0].type for case in suite if case.result}
    assert wrong == {"kprobe": "budget exceeded", "jprobe": "failed", "djprobe": "budget exceeded"}


def test_junit_fails_a_cell_that_the_kernel_cannot_have_any_more(make_night: MakeNight) -> None:
    """It is missing, which exceeds any budget: the night is bad."""
    without = failed("kprobe", "no kprobes", status="unsupported")
    night = make_night([cell("none"), cell("kprobe")], [cell("none"), without])
    assert not night.is_good
    suite = TestSuite.fromstring(
        render_junit(
            night.run.record, PROVENANCE, {}, {change.pair.first.id: change.exceeded for change in night.exceeded}
        )
    )
    assert (suite.tests, suite.failures, suite.skipped) == (2, 1, 0)
    assert "no kprobes" in suite.tostring().decode()


def test_junit_fails_a_night_that_was_not_compared(make_night: MakeNight, tmp_path: Path) -> None:
    night = replace(make_night([cell("none")], [cell("none")]), compared=None, not_compared="scipy is missing")
    NightlyReport(None, tmp_path / "junit.xml", None).write(night)
    suite = TestSuite.fromstring((tmp_path / "junit.xml").read_text())
    assert (suite.tests, suite.failures) == (2, 1)
    assert "scipy is missing" in suite.tostring().decode()


def test_a_night_that_measured_nothing_is_told() -> None:
    reason = "no QEMU\nhint: install it"
    message = email.message_from_string(unmeasured_mail("x", FILE, reason, NOW), policy=email.policy.default)
    assert message["Subject"] == "[x] not measured"
    assert f"x: {FILE}" in message.get_content()
    content = UnmeasuredNight.of("x", FILE, reason, HOST).model_dump(mode="json")
    assert (content["night"], content["file"]) == ("not measured", FILE)
    suite = TestSuite.fromstring(unmeasured_junit("x", reason))
    assert (suite.tests, suite.errors) == (1, 1)


class SilentWebhook:
    """A webhook whose server does not answer."""

    def post(self, content: Mapping[str, Any]) -> None:
        raise HostError("posting to the webhook at example.invalid failed: no answer")


def test_a_webhook_that_does_not_answer_is_a_warning(tmp_path: Path) -> None:
    warnings: list[str] = []
    report = NightlyReport(tmp_path / "mail", None, cast(Webhook, SilentWebhook()), warnings.append)
    report.unmeasured("nightly", FILE, HostError("there is no mirror"))
    assert "there is no mirror" in (tmp_path / "mail").read_text()
    assert warnings == ["warning: posting to the webhook at example.invalid failed: no answer"]
