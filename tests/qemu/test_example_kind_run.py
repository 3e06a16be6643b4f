# SPDX-License-Identifier: GPL-2.0-only
"""Does a kind of benchmark that the package has never seen run, from its experiment file to its table?"""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest
from example_kind import kind
from example_kind.registry import kinds, reports
from rich.console import Console

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan, select
from orchestrator.report.markdown import render_markdown
from orchestrator.report.text import print_table
from orchestrator.results.contract import CellRecord, RunRecord, all_ok, json_text
from orchestrator.results.store import Store
from orchestrator.run.runner import ProgressListener, Runner, check_resumable

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

CONFIG = Path(kind.__file__).with_name("reading.yaml")
KERNEL = "lab-i386-up"
SMALL = f"kernels=[{KERNEL}]"
"""Its list of symbols, which cells read thirteen times, is half of Debian's."""
PLACE = f"files/pentium4/{KERNEL}"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """A lab of the test's own."""
    with Store.open(tmp_path / "lab") as opened:
        yield opened


@pytest.fixture
def runner(workshop: BuildContext, store: Store) -> Runner:
    """Runs experiments of all kinds."""
    return Runner(workshop, store, ProgressListener(), kinds())


@pytest.fixture
def experiment() -> Experiment:
    """Readings, and beside them a probe."""
    return load_experiment(CONFIG, kinds(), [SMALL])


def by_name(record: RunRecord) -> dict[str, CellRecord]:
    """The readings by their files, the calls by their probes."""
    return {str(cell.parameters.get("file", cell.probe)): cell for cell in record.cells}


def test_it_runs_beside_another_kind_and_is_printed(
    runner: Runner, store: Store, experiment: Experiment, tmp_path: Path
) -> None:
    entry = runner.run(experiment, plan(experiment), tmp_path / "run")
    record = store.load_run(entry.id)
    assert all_ok(record)
    cells = by_name(record)
    assert list(cells) == ["/dev/null", "/proc/version", "/proc/kallsyms", "/proc/no-such-file", "none", "djprobe"]
    empty, version, symbols = (cells[name] for name in ("/dev/null", "/proc/version", "/proc/kallsyms"))
    assert (empty.overhead, empty.parameters["bytes"]) == (0.0, 0)
    assert version.overhead is not None
    assert symbols.interval is not None
    # One line is little beside the program that reads it; tens of thousands are made as they are read.
    assert abs(version.overhead) < 100_000
    assert symbols.interval[0] > 10_000_000
    assert int(symbols.parameters["bytes"]) > 1000 * int(version.parameters["bytes"])
    for cell in (empty, version, symbols):
        assert cell.work is not None
        assert (len(cell.samples), cell.work.runs, cell.work.mechanism) == (12, 13, "none")
    missing = cells["/proc/no-such-file"]
    assert (missing.status, missing.reason) == ("unsupported", "the guest has no file /proc/no-such-file")
    assert cells["djprobe"].overhead is not None
    # Each kind has its own boot, with its own logs.
    assert {path.parent.name for path in entry.directory.rglob("*.console")} == {"boot1", "boot2"}
    assert RunRecord.model_validate_json(json_text(record)) == record

    file = io.StringIO()
    print_table(record, Console(file=file, width=100), reports())
    assert "Reading a file" in file.getvalue()
    assert "13 runs read the same" in file.getvalue()
    assert "## Reading a file" in render_markdown(record, reports())


def test_a_run_of_it_goes_on_where_it_was_stopped(runner: Runner, store: Store, tmp_path: Path) -> None:
    """Here: that none but the empty file's cell had an outcome when it was."""
    experiment = load_experiment(CONFIG, kinds(), [SMALL, "tables.files.benchmark.files=[/proc/version]"])
    whole = plan(experiment)
    begun = store.begin_run(
        experiment.name,
        [cell.id for cell in whole.cells],
        digest="of an older version",
        provenance={},
        directory=tmp_path / "run",
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "experiment.yaml").write_text(experiment.resolved_yaml())
    check_resumable(begun, experiment, kinds())
    runner.resume(begun, experiment, select(whole, [f"id={PLACE}/dev/null"]))
    (empty,) = store.load_run(begun.id).cells
    assert store.entry(begun.id).status == "interrupted"
    runner.resume(begun, experiment, select(whole, ["table=files"]))
    cells = by_name(store.load_run(begun.id))
    assert cells["/dev/null"] == empty
    assert cells["/proc/version"].value is not None
    assert empty.value is not None
    assert cells["/proc/version"].overhead == cells["/proc/version"].value - empty.value


def test_content_that_changes_fails_its_cell_and_the_next_has_another_guest(
    runner: Runner, store: Store, tmp_path: Path
) -> None:
    changing = load_experiment(CONFIG, kinds(), [SMALL, "tables.files.benchmark.files=[/proc/uptime,/proc/version]"])
    entry = runner.run(changing, select(plan(changing), ["table=files"]), tmp_path / "run")
    cells = by_name(store.load_run(entry.id))
    assert [cell.status for cell in cells.values()] == ["ok", "failed", "ok"]
    assert "another content from one run to the next" in str(cells["/proc/uptime"].reason)
    logs = sorted(path.name for path in entry.directory.rglob("*.console"))
    assert logs == [f"guest{number}-pentium4-{KERNEL}.console" for number in (1, 2)]
