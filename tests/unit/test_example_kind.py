# SPDX-License-Identifier: GPL-2.0-only
"""Is a kind of benchmark that the package has never seen loaded, planned, compared and printed like its own?"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
from example_kind.benchmark import BENCHMARK
from example_kind.kind import KIND, ReadingKind
from example_kind.registry import kinds, reports
from example_kind.table import ReadingCell
from host_toolchain import NOWHERE, a_kernel
from record_builders import noop_list, run
from report_text import printed

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks import registry
from orchestrator.catalog.cpus import cpu
from orchestrator.errors import ConfigError
from orchestrator.experiment.cell import Cell
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.guest.machine import Machine
from orchestrator.report.chart import BarChart
from orchestrator.report.markdown import render_markdown
from orchestrator.report.table_report import charts
from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import median
from orchestrator.run.benchmark_kind import BootArtifacts, BootTask, Prepared, Ready, Refused, Session
from orchestrator.run.boot import run_boot
from orchestrator.run.boot_events import CellRecorded, Event
from orchestrator.run.cell_records import without_number

CONFIG = Path(__file__).parents[1] / "example_kind" / "reading.yaml"
FILES = """\
name: x
kernels: [debian-686]
machines: [{cpu: pentium4}]
"""


def cells_of(config: Path = CONFIG) -> list[Cell[Any]]:
    """The cells of the experiment's readings."""
    (boot,) = (boot for boot in plan(load_experiment(config, kinds())).boots if boot.kind == KIND.name)
    return list(boot.cells)


def record(cell: Cell[Any], *samples: float) -> CellRecord:
    """What a guest measured, before it is compared: these samples, six times."""
    refused = without_number(cell, "failed", "to be filled in").model_dump()
    work = {"mechanism": "none", "runs": 6 * len(samples) + 1, "done": 1, "digest": "ab" * 32, "restored": None}
    filled = {
        "parameters": {**cell.parameters, "bytes": 80},
        "status": "ok",
        "reason": None,
        "samples": samples * 6,
        "value": median(samples),
        "work": {**work, "clocksource": "tsc", "taint": 0},
    }
    return CellRecord.model_validate({**refused, **filled})


def compared() -> list[CellRecord]:
    """The records of a run in which one file was not there."""
    empty, version, symbols, missing = cells_of()
    base = KIND.compare(empty, record(empty, 200_000), [])
    return [
        base,
        KIND.compare(version, record(version, 203_000), [base]),
        KIND.compare(symbols, record(symbols, 900_000), [base]),
        without_number(missing, "unsupported", "the guest has no file /proc/no-such-file"),
    ]


def test_a_table_of_it_stands_beside_one_of_another_kind() -> None:
    experiment = load_experiment(CONFIG, kinds())
    assert [(table.name, table.kind.name) for table in experiment.tables] == [("files", "reading"), ("calls", "calls")]
    boots = plan(experiment).boots
    assert [(boot.kind, len(boot.cells)) for boot in boots] == [("reading", 4), ("calls", 2)]
    place = "files/pentium4/debian-686"
    assert [(cell.id, cell.compared_with) for cell in boots[0].cells] == [
        (f"{place}/dev/null", ()),
        (f"{place}/proc/version", (f"{place}/dev/null",)),
        (f"{place}/proc/kallsyms", (f"{place}/dev/null",)),
        (f"{place}/proc/no-such-file", (f"{place}/dev/null",)),
    ]
    assert KIND.describe(boots[0].cells[1]) == "12 x cat /proc/version"


def test_example_experiment_is_equal_when_loaded_again(tmp_path: Path) -> None:
    experiment = load_experiment(CONFIG, kinds(), ["tables.files.benchmark.repeats=7"])
    again = tmp_path / "again.yaml"
    again.write_text(experiment.resolved_yaml())
    assert load_experiment(again, kinds()).digest() == experiment.digest()
    assert {cell.repeats for cell in cells_of(again)} == {7}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("benchmark: {name: reading}", "x.yaml:4: benchmark.files: missing"),
        ("benchmark: {name: reading, files: [/etc/passwd]}", "found '/etc/passwd'; expected a file below /proc or"),
        ("benchmark: {name: reading, files: [/proc/../etc/passwd]}", "expected a file below /proc or /sys"),
        ("benchmark: {name: reading, files: [/proc/stat], repeat: 2}", "did you mean 'repeats'?"),
        ("benchmark: {name: reading, files: [/proc/stat]}\nprobes: [kprobe]", "probes.0: found 'kprobe'"),
        ("benchmark: {name: reading, files: [/proc/stat]}\nclock: wall", "is counted in instructions"),
        ("benchmark: {name: readin, files: [/proc/stat]}", "did you mean 'reading'?"),
    ],
)
def test_problems_of_its_table_are_reported_as_of_any_other(tmp_path: Path, line: str, complaint: str) -> None:
    config = tmp_path / "x.yaml"
    config.write_text(f"{FILES}{line}\n")
    with pytest.raises(ConfigError) as wrong:
        load_experiment(config, kinds())
    assert complaint in str(wrong.value)


def test_a_file_that_the_kernel_is_built_without_is_refused(tmp_path: Path) -> None:
    kernel = a_kernel("debian-686", {"CONFIG_SMP": "y"})
    empty, version, symbols, missing = cells_of()
    refused = KIND.refused(kernel, [empty, version, symbols, missing])
    assert refused == {symbols.id: "this kernel was built without CONFIG_KALLSYMS"}
    prepared = KIND.prepare(BuildContext(Cache(tmp_path)), kernel, [empty, version, missing])
    assert all(isinstance(prepared[cell.id], Ready) for cell in (empty, version, missing))


class WithoutRecords(ReadingKind):
    """Measures nothing."""

    def measure(self, session: Session, cells: Sequence[ReadingCell]) -> Generator[CellRecord, None, None]:
        yield from ()


class WithoutGuests(ReadingKind):
    """Has no guest to measure in."""

    def measure(self, session: Session, cells: Sequence[ReadingCell]) -> Generator[CellRecord, None, None]:
        raise AssertionError("a guest was asked for")


def outcomes_of(kind: ReadingKind, prepared: dict[str, Prepared[None]], directory: Path) -> list[CellRecord]:
    """What comes of the boot's cells."""
    boot = next(boot for boot in plan(load_experiment(CONFIG, kinds())).boots if boot.kind == KIND.name)
    artifacts = BootArtifacts(a_kernel("debian-686"), Machine(cpu("pentium4"), NOWHERE, NOWHERE), prepared)
    task = BootTask(kind, boot, boot.cells, directory / "boot1")
    events: list[Event] = []
    run_boot(Session(task, artifacts, BuildContext(Cache(directory)), events.append))
    return [event.record for event in events if isinstance(event, CellRecorded)]


def test_cells_that_get_no_record_fail_once_after_those_that_are_refused(tmp_path: Path) -> None:
    prepared: dict[str, Prepared[None]] = {cell.id: Ready(None) for cell in cells_of()}
    *ready, last = prepared
    prepared[last] = Refused("unsupported", "this kernel was built without CONFIG_KALLSYMS")
    first, *other_cells = outcomes_of(WithoutRecords(), prepared, tmp_path)
    assert (first.id, first.status) == (last, "unsupported")
    assert [(cell.id, cell.status) for cell in other_cells] == [(id_, "failed") for id_ in ready]
    assert other_cells[0].reason == "benchmark kind 'reading' measured its cells and made no record"


def test_a_boot_whose_cells_are_all_refused_starts_no_guest(tmp_path: Path) -> None:
    reason = "this kernel was built without CONFIG_KALLSYMS"
    prepared: dict[str, Prepared[None]] = {cell.id: Refused("unsupported", reason) for cell in cells_of()}
    outcomes = outcomes_of(WithoutGuests(), prepared, tmp_path)
    assert [(outcome.id, outcome.reason) for outcome in outcomes] == [(id_, reason) for id_ in prepared]


def test_a_file_is_compared_with_the_empty_one_of_its_kernel() -> None:
    assert [cell.overhead for cell in compared()] == [0.0, 3000.0, 700_000.0, None]
    _, version, *_ = cells_of()
    assert KIND.compare(version, record(version, 203_000), []).overhead is None


def test_a_difference_below_the_scatter_has_no_verdict() -> None:
    empty, version, *_ = cells_of()
    clear = KIND.compare(version, record(version, 203_000, 205_000), [record(empty, 200_000, 201_000)])
    assert (clear.overhead, clear.interval, clear.verdict) == (3500.0, (2000.0, 5000.0), None)
    hidden = KIND.compare(version, record(version, 203_000, 205_000), [record(empty, 200_000, 204_000)])
    assert (hidden.overhead, hidden.interval, hidden.verdict) == (2000.0, (-1000.0, 5000.0), "none")
    assert hidden.notes == ("no verdict: the difference lies between -1000 and 5000 instructions",)


def test_report_has_the_example_kinds_table_and_chart() -> None:
    whole = run(*compared(), *noop_list("list5"))
    text = printed(whole, registry=reports())
    lines = text.splitlines()
    assert lines[:2] == ["Reading a file", "pentium4, 1 CPU, kernel debian-686, a run of cat in instructions"]
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.startswith("/")}
    assert rows == {
        "/dev/null": ["200000", "0", "80"],
        "/proc/version": ["203000", "3000", "80"],
        "/proc/kallsyms": ["900000", "700000", "80"],
        "/proc/no-such-file": ["unsupported", "[1]", "-", "-"],
    }
    assert "[1] /proc/no-such-file unsupported: the guest has no file /proc/no-such-file" in text
    assert "gtodbench" in text
    assert "## Reading a file" in render_markdown(whole, reports())
    chart = charts(whole, reports())["files"]
    assert isinstance(chart, BarChart)
    assert chart.labels == ["/proc/version", "/proc/kallsyms"]


def test_a_package_without_it_prints_its_records_in_the_plain_table() -> None:
    text = printed(run(*compared()), width=160, registry=registry.reports())
    assert text.splitlines()[0] == BENCHMARK
    assert "files/pentium4/debian-686/proc/version" in text


def test_a_table_without_any_number_is_printed() -> None:
    failed = run(*(without_number(cell, "failed", "the guest hangs") for cell in cells_of()))
    text = printed(failed, registry=reports())
    assert text.count("failed [1]") == len(failed.cells)
    assert " failed (4 cells): the guest hangs " in " ".join(text.split())
    assert charts(failed, reports()) == {}
