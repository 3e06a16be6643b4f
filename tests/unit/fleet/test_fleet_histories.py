# SPDX-License-Identifier: GPL-2.0-only
"""Whatever happens to a fleet, does each cell get one outcome, or the run an error, and is every wrong count told?

Histories are drawn: in which order workers speak, and what goes wrong when.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import HostError, LabError
from orchestrator.run.boot_events import CellRecorded, Progress

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from staged_fleet import PLAYED, Boot, Play, Stage, Worker, honest, jobs_of, record_of

from orchestrator.fleet.link import Ended, Joined, Message, Notice
from orchestrator.fleet.messages import FileMessage, received, sent

ANCHOR = "anchor"


class History:
    """A fleet in which something goes wrong at given steps; never with the worker called ANCHOR, where there is one."""

    def __init__(self, draw: random.Random, faults: Mapping[int, str]) -> None:
        self.stage = Stage(draw.randrange)
        self._draw, self._faults = draw, dict(faults)
        self._liars = 0
        self._names = (f"w{number}" for number in count())

    def join(self) -> None:
        """A worker comes."""
        self.stage.join(next(self._names), guests=self._draw.randint(1, 3))

    def go_on(self) -> None:
        """What is to go wrong before the next step does."""
        fault = self._faults.pop(self.stage.steps, None)
        if fault is not None:
            FAULTS[fault](self)

    def to_a_worker(self, do: Callable[[Worker], None]) -> None:
        """Choose whom it hits."""
        workers = [worker for worker in self.stage.workers.values() if worker.is_alive and worker.name != ANCHOR]
        if workers:
            do(self._draw.choice(workers))

    def to_a_boot(self, do: Callable[[Boot], None]) -> None:
        """Choose what it hits."""
        boots = [boot for boot in self.stage.boots.values() if boot.worker.name != ANCHOR]
        if boots:
            do(self._draw.choice(boots))

    def say_last(self, what: Callable[[Boot], Notice]) -> None:
        """A worker says this of a boot, and then that it has ended."""

        def script(boot: Boot) -> Iterator[Notice]:
            yield what(boot)
            yield boot.end()

        def do(boot: Boot) -> None:
            boot.script = script(boot)
            self.stage.say_next(boot)

        self.to_a_boot(do)

    def start_anew(self, worker: Worker) -> None:
        """A worker is killed, and another one is started."""
        self.stage.kill(worker)
        self.stage.join(worker.name, guests=worker.guests)

    def lie(self, worker: Worker) -> None:
        """From its next boot on, that it begins alone, it counts wrong, and no two do alike.

        A count that is right is taken as a proof of the whole boot, and of those side by side with it.
        """
        self._liars += 1
        surplus = float(self._liars)

        def script(boot: Boot) -> Iterator[Notice]:
            if not any(other_boot.worker is worker for other_boot in self.stage.boots.values()):
                worker.surplus = surplus
            return honest(boot)

        worker.script = script

    def say_again(self) -> None:
        """What was heard of boots that have ended comes late."""
        late = [joined for joined in self.stage.past if attempt_of(joined) not in self.stage.boots]
        for item in self._draw.sample(late, min(5, len(late))):
            self.stage.inbox.put(item)

    def noise(self) -> None:
        """Things that are of no boot."""
        for item in (Message(None), Message(sent("nobody-1", Progress("x"))), Ended("nobody-1")):
            self.stage.inbox.put(item)


def attempt_of(item: Notice) -> str:
    match item:
        case Ended(attempt):
            return attempt
        case Message(message):
            return received(message)[0]
    return ""


def lose_a_message(boot: Boot) -> None:
    """The next one, but not that of its end: that is Dask's."""
    item = next(boot.script, None)
    if isinstance(item, Ended):
        boot.script = iter([item])


def fail_host(boot: Boot) -> None:
    """It says that its host fails; what it has measured is checked like that of any other."""
    boot.script = iter([boot.end(HostError("there is no room left"))])


def of_another_cell(boot: Boot) -> Message:
    """An outcome that nobody has asked for."""
    return boot.tell(CellRecorded(record_of(replace(boot.task.cells[0], id="nobody"))))


FAULTS: dict[str, Callable[[History], None]] = {
    "a worker comes": History.join,
    "a worker dies": lambda history: history.to_a_worker(history.stage.kill),
    "a worker is started anew": lambda history: history.to_a_worker(history.start_anew),
    "a worker counts wrong": lambda history: history.to_a_worker(history.lie),
    "a message is lost": lambda history: history.to_a_boot(lose_a_message),
    "a host fails": lambda history: history.to_a_boot(fail_host),
    "old messages come again": History.say_again,
    "a member joins twice": lambda history: history.to_a_worker(
        lambda worker: history.stage.inbox.put(Joined(worker.address))
    ),
    "a task is cancelled": lambda history: history.say_last(lambda boot: boot.end(CancelledError())),
    "a boot fails": lambda history: history.say_last(lambda boot: boot.end(LabError("no such file"))),
    "a boot ends too soon": lambda history: history.say_last(lambda boot: boot.end()),
    "an outcome is of another cell": lambda history: history.say_last(of_another_cell),
    "a file leads out": lambda history: history.say_last(
        lambda boot: boot.tell(FileMessage(name="../lab.sqlite", content=b""))
    ),
    "noise": History.noise,
}

STEPS = st.dictionaries(st.integers(0, 120), st.sampled_from(sorted(FAULTS)), max_size=12)
DRAWS = st.randoms(use_true_random=False)


@pytest.fixture(scope="module", autouse=True)
def _no_guests() -> object:
    with pytest.MonkeyPatch.context() as patch:
        for name, played in PLAYED.items():
            patch.setattr(name, played)
        # A fleet without workers has none for ever here: nothing waits.
        patch.setattr("orchestrator.fleet.fleet_executor._PATIENCE", -1.0)
        yield


@given(draw=DRAWS, faults=STEPS, workers=st.integers(1, 4))
def test_each_cell_gets_one_outcome_or_the_run_an_error(
    tmp_path_factory: pytest.TempPathFactory,
    draw: random.Random,
    faults: dict[int, str],
    workers: int,
) -> None:
    history = History(draw, faults)
    folder = tmp_path_factory.mktemp("run")
    play = Play(folder, jobs_of(folder, 5), history.stage)
    for _ in range(workers):
        history.join()
    history.stage.before_step = history.go_on
    # Without workers a run ends, and says so; so does one of whose workers one counts wrong.
    with suppress(LabError):
        play.run()
    for record in play.ledger.records.values():
        assert record.status == "ok" or (record.reason or "").startswith("the boot has lost 3 workers")


@given(draw=DRAWS, faults=STEPS, workers=st.integers(1, 3))
def test_no_wrong_count_is_kept_in_silence(
    tmp_path_factory: pytest.TempPathFactory,
    draw: random.Random,
    faults: dict[int, str],
    workers: int,
) -> None:
    history = History(draw, faults)
    folder = tmp_path_factory.mktemp("run")
    play = Play(folder, jobs_of(folder, 5), history.stage)
    history.stage.join(ANCHOR, guests=1)

    def before_step() -> None:
        if play.lines.said and len(history.stage.workers) == 1:
            for _ in range(workers):  # when the anchor works
                history.join()
        history.go_on()

    history.stage.before_step = before_step
    told = ""
    try:
        play.read()
    except LabError as error:
        told = str(error)
        assert "must be measured again" in told
        assert f"{ANCHOR}: " not in told
    play.ledger.check(play.jobs)
    wrong = {
        record.worker
        for job in play.jobs
        for cell in job.task.cells
        for record in [play.ledger.records[cell.id]]
        if record.status == "ok" and record.samples != record_of(cell).samples
    }
    assert all(f"{name}: " in told for name in wrong)
