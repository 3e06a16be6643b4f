# SPDX-License-Identifier: GPL-2.0-only
"""Does a run whose processes are killed at any moment lose nothing, leave nothing, and end with the same numbers?"""

from __future__ import annotations

import random
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import QUICKSTART, REDUCED, FinishedRun
from killed_run import KilledLab, Moment
from undisturbed_run import RUN, Undisturbed, are_equal, values

from orchestrator.results.runs import RESULTS_FILE, RUN_FILE

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]

QUICK = ("run", QUICKSTART, *REDUCED)
QUICK_LINES = 60
"""Of progress, that a quickstart writes at least with all its artifacts at hand."""

STRIKES = 4
"""Programs of one run that are killed."""


@pytest.fixture(scope="module")
def cold_run(tmp_path_factory: pytest.TempPathFactory) -> Undisturbed:
    return Undisturbed(KilledLab.cold(tmp_path_factory.mktemp("undisturbed") / "lab"))


@pytest.fixture
def draw(request: pytest.FixtureRequest) -> random.Random:
    """Draws moments; with the seed that it prints, or ``--kill-seed``, the same ones again."""
    given = request.config.getoption("kill_seed")
    seed = random.randrange(1 << 32) if given is None else given
    print(f"moments: --kill-seed {seed}", flush=True)
    return random.Random(seed)


def labs(root: Path, draw: random.Random, warm: float) -> Iterator[KilledLab]:
    """Labs without runs, one after the other in one place; in this share of them the cache is the one before's."""
    while True:
        if not root.exists() or draw.random() >= warm:
            shutil.rmtree(root, ignore_errors=True)
            lab = KilledLab.cold(root)
        shutil.rmtree(lab.store)
        yield lab


@pytest.fixture
def kills(request: pytest.FixtureRequest) -> int:
    return int(request.config.getoption("kills"))


@pytest.mark.nightly("a hundred kills take half an hour")
def test_a_killed_orchestrator_goes_on_to_the_same_end(
    cold_run: Undisturbed, draw: random.Random, kills: int, tmp_path: Path
) -> None:
    killed = 0
    for lab in labs(tmp_path / "lab", draw, warm=0.5):
        while not (runs := lab.runs()) or runs[0].status != "complete":
            moment = Moment.drawn(draw, cold_run.lines)
            resume = ["--resume"] if runs else []
            with lab.running(*RUN, *resume) as command:
                if command.reach(moment):
                    command.process.kill()
                status = command.end()
            killed += status != 0
            print(f"{killed} kills: {moment} of {' '.join(resume)} {len(command.lines)}: {status}", flush=True)
            assert status in (0, -signal.SIGKILL), command.lines
            assert not any("Traceback" in line or "warning" in line for line in command.lines), command.lines
            assert [run.status for run in lab.runs()] in ([], ["interrupted"], ["complete"])
        assert values(lab.cells(runs[0])) == cold_run.values
        assert {"experiment.yaml", "provenance.json", RUN_FILE, RESULTS_FILE} <= {
            file.name for file in runs[0].directory.iterdir()
        }
        assert lab.litter() == []
        if killed >= kills:
            break


@pytest.mark.nightly("a hundred kills take half an hour")
@pytest.mark.parametrize("target", ["QEMU", "worker"])
def test_a_killed_program_costs_its_cell(
    cold_run: Undisturbed, draw: random.Random, kills: int, target: str, tmp_path: Path
) -> None:
    names: Counter[str] = Counter()
    # Modules are built before the guests start.
    lines = cold_run.lines if target == "QEMU" else cold_run.lines // 3
    # Where nothing is to be built, few programs run besides QEMU.
    for lab in labs(tmp_path / "lab", draw, warm=0.5 if target == "QEMU" else 0):
        moments = sorted((Moment.drawn(draw, lines) for _ in range(STRIKES)), key=lambda one: one.lines)
        struck = []
        with lab.running(*RUN) as command:
            for moment in moments:
                name = command.strike(target, draw) if command.reach(moment) else None
                if name is not None:
                    struck.append((len(command.lines), name))
            status = command.end()
        names.update(name for _, name in struck)
        print(f"{names.total()} kills: {struck} of {len(command.lines)}: {status}", flush=True)
        assert status in (0, 1, 3), command.lines
        assert not any("Traceback" in line for line in command.lines), command.lines
        for run in lab.runs():
            assert run.status == ("interrupted" if status == 3 else "complete")
            cells = lab.cells(run)
            assert are_equal(values(cells), cold_run.values)
            failed = [cell for cell in cells.values() if cell.status != "ok"]
            print(*(f"  {cell.id}: {cell.status}: {cell.reason}" for cell in failed), sep="\n")
            assert target != "QEMU" or all("QEMU ended (signal 9)" in (cell.reason or "") for cell in failed)
        # What the killed one left in the cache harms no other run.
        with lab.running(*RUN) as command:
            assert command.end() == 0, command.lines
        assert values(lab.cells(lab.runs()[0])) == cold_run.values
        assert lab.litter() == []
        if names.total() >= kills:
            break
    print(names)


@pytest.mark.nightly("a kill more; test_interruption.py and test_nightly.py kill a run every day")
def test_a_kill_among_many(undisturbed: FinishedRun, draw: random.Random, tmp_path: Path) -> None:
    lab = KilledLab.warm(tmp_path / "lab")
    with lab.running(*QUICK) as command:
        assert command.reach(Moment.drawn(draw, QUICK_LINES)), command.lines
        command.process.kill()
    assert [run.status for run in lab.runs()] in ([], ["interrupted"])
    with lab.running(*QUICK, *(["--resume"] if lab.runs() else [])) as command:
        assert command.end() == 0, command.lines
    (run,) = lab.runs()
    expected = values({cell.id: cell for cell in undisturbed.cells().values()})
    assert (run.status, values(lab.cells(run))) == ("complete", expected)
    assert lab.litter() == []
