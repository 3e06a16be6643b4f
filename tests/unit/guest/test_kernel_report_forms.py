# SPDX-License-Identifier: GPL-2.0-only
"""Is each form of a kernel's report known, with the function it is about, however it reaches the console?"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from golden_reports import FOLDER, ExpectedLog, expected_logs
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.guest import console as console_module
from orchestrator.guest.blame import culprit_of
from orchestrator.guest.console import Console
from orchestrator.guest.kernel_reports import KernelReport, KnownReport, Trouble, excerpt, known_reports, reports_in
from orchestrator.guest.panic import answers_interruption, panic_among

LOGS = expected_logs()
NAMES = sorted(LOGS)
STAMP = re.compile(r"^(\[ *\d+\.\d{6}\])", re.MULTILINE)
USER_SPACE = [
    "login: Kernel panic - not syncing: is what the manual says",
    "make[1]: Entering directory '/tmp'",
    "EIP: unknown_function+0x1/0x2",
    "sh: can't create x: No space left on device",
]
"""Lines of programs: none is a kernel's, though two look like a part of it."""


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.log").read_text()


def meaning(reports: list[KernelReport]) -> list[tuple[str, str | None]]:
    """What must not depend on how a log came."""
    return [(report.trouble, culprit_of(report.lines)) for report in reports]


def expected_meaning(name: str) -> list[tuple[str, str | None]]:
    return [(report.kind, report.guilty) for report in LOGS[name].reports]


def reports_of(text: str, folder: Path) -> list[KernelReport]:
    path = folder / "console"
    path.write_bytes(text.encode())
    return list(Console(path).reports())


def test_every_log_has_its_expectation() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {f"{name}.log" for name in LOGS}


@pytest.mark.parametrize("name", NAMES)
def test_the_reports_of_a_log(name: str) -> None:
    expected: ExpectedLog = LOGS[name]
    reports = list(Console(FOLDER / f"{name}.log").reports())
    assert meaning(reports) == expected_meaning(name)
    for report, said in zip(reports, expected.reports, strict=True):
        assert said.first in report.lines[0]
        assert said.last in report.lines[-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_panic_of_a_log(name: str) -> None:
    panic, expected = panic_among(Console(FOLDER / f"{name}.log").reports()), LOGS[name].panic
    assert (panic is None) == (expected is None)
    if panic is None or expected is None:
        return
    assert panic.sentence.startswith(expected.sentence)
    assert panic.culprit == expected.guilty
    assert expected.first in panic.lines[0]
    assert expected.last in panic.lines[-1]


def coloured(text: str) -> str:
    return "".join(f"\x1b[1;31m{line}\x1b[0m\x1b[K\n" for line in text.splitlines())


DISGUISES: dict[str, Callable[[str], str]] = {
    "coloured": coloured,
    "carriage returns": lambda text: text.replace("\n", "\r\n"),
    "padding": lambda text: text.replace("\n", " \t\0\n\n"),
    "a caller's thread": lambda text: STAMP.sub(r"\1[    T1]", text),
    "a caller's CPU": lambda text: STAMP.sub(r"\1[    C0]", text),
    "a long uptime": lambda text: STAMP.sub("[123456.123456]", text),
    "behind a long boot": lambda text: "[    0.500000] pci 0000:00:01.0: a line of the boot\n" * 100 + text,
    "behind a prompt": lambda text: STAMP.sub(r"~ # \1", text),
}


@pytest.mark.parametrize("name", NAMES)
def test_the_form_of_the_lines_does_not_matter(name: str, tmp_path: Path) -> None:
    text = text_of(name)
    pairs = {disguise: meaning(reports_of(change(text), tmp_path)) for disguise, change in DISGUISES.items()}
    assert pairs == dict.fromkeys(DISGUISES, expected_meaning(name))


@pytest.mark.parametrize("prefix", ["", "<4>"])
@pytest.mark.parametrize("name", NAMES)
def test_a_log_without_time_stamps_says_the_same(name: str, prefix: str, tmp_path: Path) -> None:
    text = re.sub(r"(?m)^\[ *\d+\.\d{6}\] ", prefix, text_of(name))
    assert meaning(reports_of(text, tmp_path)) == expected_meaning(name)


@pytest.mark.parametrize(("above", "is_part"), [("[    6.017233] ", True), ("[    5.017233] ", False), ("", False)])
def test_a_message_right_above_a_warning_is_part_of_it(above: str, is_part: bool) -> None:
    message, *lines = text_of("faulty-warn-7.3").splitlines()[1:]
    assert message == "[    6.017233] this is only a test"
    (report,) = reports_in([f"{above}this is only a test", *lines])
    assert report.is_expected([re.compile("only a test")]) == is_part
    assert len(report.lines) == len(lines) + is_part


def test_a_damaged_name_of_who_reports_a_panic_is_not_to_blame(tmp_path: Path) -> None:
    damaged = text_of("sysrq-32").replace(" dump_stack_lvl+", " dump_sstack_lvl+")
    assert damaged != text_of("sysrq-32")
    assert meaning(reports_of(damaged, tmp_path)) == expected_meaning("sysrq-32")


@given(name=st.sampled_from(NAMES), size=st.integers(300, 5000))
def test_the_size_of_a_read_does_not_matter(name: str, size: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console_module, "_MOST_AT_ONCE", size)
        reports = list(Console(FOLDER / f"{name}.log").reports())
    assert meaning(reports) == expected_meaning(name)


@given(name=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32))
def test_lines_of_user_space_in_between_do_not_matter(
    name: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    lines = []
    for line in text_of(name).splitlines():
        if chance.random() < 0.05:
            lines.append(chance.choice(USER_SPACE))
        lines.append(line)
    reports = reports_of("\n".join(lines) + "\n", tmp_path_factory.getbasetemp())
    assert meaning(reports) == expected_meaning(name)


@given(first=st.sampled_from(NAMES), second=st.sampled_from(NAMES), seed=st.integers(0, 1 << 32))
def test_reports_of_two_cpus_are_told_apart_by_the_caller(
    first: str, second: str, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    chance = random.Random(seed)
    waiting = [
        STAMP.sub(rf"\1[   T{thread}]", text_of(name)).splitlines() for thread, name in ((71, first), (72, second))
    ]
    lines = []
    while any(waiting):
        lines.append(chance.choice([part for part in waiting if part]).pop(0))
    reports = reports_of("\n".join(lines) + "\n", tmp_path_factory.getbasetemp())
    of = {thread: [report for report in reports if f"T{thread}]" in report.lines[0]] for thread in (71, 72)}
    assert meaning(of[71]) == expected_meaning(first)
    assert meaning(of[72]) == expected_meaning(second)


def test_answer_to_an_nmi_of_the_lab_is_no_kernel_report() -> None:
    reports = {name: list(Console(FOLDER / f"{name}.log").reports()) for name in NAMES}
    answers = {name for name in NAMES if any(map(answers_interruption, reports[name]))}
    assert answers == {"faulty-spin-32", "faulty-spin-64", "faulty-busy-7.3"}


@pytest.mark.parametrize("known", known_reports(), ids=lambda known: known.what)
def test_listed_reports_are_known_by_their_first_line(known: KnownReport) -> None:
    (report,) = reports_in([f"[    1.000000] {known.example}"])
    assert report.trouble is known.kind
    assert next(other_report for other_report in known_reports() if re.match(other_report.sign, known.example)) is known


def test_what_an_init_function_returns_is_its_own_fault() -> None:
    lines = [
        "do_init_module: 'lab_probe'->init suspiciously returned 5, it should follow 0/-E convention",
        "do_init_module: loading module anyway...",
        "CPU: 0 PID: 71 Comm: insmod Tainted: G           O       6.1.192-lab #1",
        "Call Trace:",
        " dump_stack_lvl+0x44/0x5c",
        " do_init_module.cold+0x1f/0x40",
    ]
    (report,) = reports_in(f"[    1.000000] {line}" for line in lines)
    assert (report.trouble, culprit_of(report.lines)) == (Trouble.WARNING, "init [lab_probe]")
    assert len(report.lines) == len(lines)


def test_a_call_trace_long_after_a_report_is_no_part_of_it() -> None:
    bad = "[    1.000000] BUG: Bad rss-counter state mm:00000000c5bdc5a1 type:MM_FILEPAGES val:1"
    trace = [
        "lab: something else",
        "CPU: 0 PID: 71 Comm: cat Not tainted 6.1.0 #1",
        "Call Trace:",
        " lab_read+0x1/0x2 [lab]",
    ]
    reports = list(reports_in([bad, *(f"[    3.000000] {line}" for line in trace)]))
    assert meaning(reports) == [(Trouble.OOPS, None), (Trouble.WARNING, "lab_read [lab]")]


@pytest.mark.parametrize("name", ["mem_cgroup_charge", "__mem_cgroup_charge", "memblock_free", "strp_recv"])
def test_a_function_of_the_kernels_that_begins_like_one_of_c_is_to_blame(name: str) -> None:
    frames = [f" {frame}+0x1/0x2" for frame in ("__memcpy", "memset", "strncpy_from_user", "strcmp", name, "caller")]
    assert culprit_of(["Call Trace:", *frames]) == name


def test_an_excerpt_prefers_the_call_trace_to_registers() -> None:
    (report,) = reports_in((FOLDER / "lkdtm-access-null-64.log").read_text().splitlines())
    shown = excerpt(report.lines, 20)
    assert len(shown) == 20
    assert any("RIP: 0010:lkdtm_ACCESS_NULL+0x14/0x53" in line for line in shown)
    assert any("full_proxy_write+" in line for line in shown)
    assert not any("RAX: " in line for line in shown)
    assert excerpt(report.lines, 60) == report.lines
    assert list(excerpt(report.lines[:10], 4)) == list(report.lines[:4])
