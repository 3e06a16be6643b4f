# SPDX-License-Identifier: GPL-2.0-only
"""Does every cell get one outcome from a fleet that may be believed, whatever becomes of its workers?"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import CancelledError
from contextlib import closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import HostError, LabError, UsageError
from orchestrator.experiment.cell import Cell
from orchestrator.guest.guest import Guest
from orchestrator.guest.guest_group import Stopped
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import Session
from orchestrator.run.boot_events import CellBegan, CellRecorded, GuestBooted, Progress
from orchestrator.run.cell_records import without_number
from orchestrator.run.executor import ExecutorEvent, Job, JobEnded
from orchestrator.steps import step_echo

pytest.importorskip("distributed", reason="the extra fleet is not installed")

from staged_fleet import HERE, PLAYED, Boot, Play, Stage, honest, jobs_of, record_of

from orchestrator.fleet.fleet_executor import _PATIENCE
from orchestrator.fleet.link import Ended, Joined, Left, Message, Notice
from orchestrator.fleet.members import Member, Roster
from orchestrator.fleet.messages import BEGINS, FileMessage, StepLine, received, sent
from orchestrator.fleet.trust import calibrated_here, measured_here


@pytest.fixture(autouse=True)
def _no_guests(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, played in PLAYED.items():
        monkeypatch.setattr(name, played)


@pytest.fixture
def stage() -> Stage:
    return Stage()


def started(stage: Stage, job: str) -> list[tuple[str, list[str]]]:
    """Who was given a job, and which of its rows."""
    return [
        (boot.worker.name, [cell.probe for cell in boot.task.cells])
        for boot in stage.started
        if boot.task.directory.name == job
    ]


def cells_of(job: Job) -> dict[str, str]:
    """Its cells' ids by their rows."""
    return {cell.probe: cell.id for cell in job.task.cells}


def attempt_of(item: Message | Ended) -> str:
    return item.attempt if isinstance(item, Ended) else received(item.message)[0]


def once(broken: Iterator[Notice], boot: Boot) -> Iterator[Notice]:
    """This is what a worker says of its boot; of all that follow it says what it should."""
    boot.worker.script = honest
    return broken


def test_a_fleet_measures_all(tmp_path: Path, stage: Stage) -> None:
    left, right = stage.join("left", guests=1), stage.join("right", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 4), stage)
    ledger = play.run()
    assert sorted(ledger.ended) == ["boot1", "boot2", "boot3", "boot4"]
    assert {record.worker for record in ledger.records.values()} == {left.name, right.name}
    assert all(
        record.samples == record_of(cell).samples
        for job in play.jobs
        for cell in job.task.cells
        for record in [ledger.records[cell.id]]
    )
    for job in play.jobs:
        assert (job.task.directory / "guest1.console").read_bytes() == b"Linux"
    assert play.executor.jobs == 2
    assert stage.silences == 0  # a fleet that has work to do does not wait


def test_events_say_which_worker_they_are_of(tmp_path: Path, stage: Stage) -> None:
    stage.join("left")
    ledger = Play(tmp_path, jobs_of(tmp_path, 1), stage).run()
    progress, booted, *rest = ledger.of("boot1")
    assert progress == Progress("boot1, debian-686 on pentium4", "left")
    assert booted == GuestBooted("guest1-pentium4", ("qemu",), worker="left")
    assert [type(event) for event in rest] == [*[CellBegan, CellRecorded] * 3, JobEnded]


def test_boots_are_given_in_the_plans_order(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=1)
    assert Play(tmp_path, jobs_of(tmp_path, 5), stage).run().ended == [f"boot{number}" for number in range(1, 6)]


def test_an_executor_without_jobs_needs_no_worker(tmp_path: Path, stage: Stage) -> None:
    assert Play(tmp_path, [], stage).run().events == []


def test_a_worker_that_comes_later_is_used(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 4), stage)

    def late() -> None:
        if len(stage.workers) == 1 and play.ledger.records:
            stage.join("right", guests=1)

    stage.before_step = late
    assert {record.worker for record in play.run().records.values()} == {"left", "right"}


def test_no_worker_gets_more_than_it_offers(tmp_path: Path, stage: Stage) -> None:
    """The stage holds it: see Stage.start()."""
    stage.join("small", guests=4, memory_mib=1000)  # two guests of 256 MiB with QEMU's own memory
    stage.join("one", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 5), stage)
    play.run()
    most = [boot.worker.name for boot in stage.started if not boot.is_calibration][:3]
    assert sorted(most) == ["one", "small", "small"]


def test_boots_that_wait_for_the_same_worker_are_asked_for_once(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each event would else ask for all of them: of 20,000 boots that is most of the client's time."""
    asked: list[int] = [0]
    able = Roster.able

    def counted(roster: Roster, *needs: Any, **more: Any) -> list[Member]:
        asked[-1] += 1
        return able(roster, *needs, **more)

    monkeypatch.setattr(Roster, "able", counted)
    monkeypatch.setattr(stage, "before_step", lambda: asked.append(0))
    stage.join("large", guests=1, memory_mib=8192)
    stage.join("small", guests=1, memory_mib=1024)
    ended = Play(tmp_path, jobs_of(tmp_path, 5, memory_mib=4096), stage).run().ended
    assert ended == [f"boot{number}" for number in range(1, 6)]
    assert max(asked) == 2  # one that begins, and one that cannot


# --- workers that end ------------------------------------------------------------------------------------------------


def test_what_a_dead_worker_has_not_measured_another_one_measures(tmp_path: Path, stage: Stage) -> None:
    def dies(boot: Boot) -> Iterator[Notice]:
        script = honest(boot)
        for _ in range(4):  # it begins, its guest boots, a cell begins, and has an outcome
            yield next(script)
        stage.kill(boot.worker)

    stage.join("left", guests=1, script=dies)
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)

    def late() -> None:
        if not stage.workers[min(stage.workers)].is_alive and len(stage.workers) == 1:
            stage.join("right")

    stage.before_step = late
    ledger = play.run()
    assert started(stage, "boot1") == [("left", ["none", "kprobe", "djprobe"]), ("right", ["kprobe", "djprobe"])]
    assert [ledger.records[id_].worker for id_ in cells_of(play.jobs[0]).values()] == ["left", "right", "right"]
    first, second = (boot.task.guests for boot in stage.started if boot.task.directory.name == "boot1")
    assert second > first  # logs of the first one's guests stay
    assert any("boot1 goes to another worker" in line for line in play.lines.said)


def test_guests_of_an_earlier_session_keep_their_logs(tmp_path: Path, stage: Stage) -> None:
    (job,) = jobs_of(tmp_path, 1)
    job.task.directory.mkdir()
    (job.task.directory / "guest7-pentium4-debian-686.console").write_text("")
    stage.join("left")
    Play(tmp_path, [job], stage).run()
    assert [boot.task.guests for boot in stage.started if not boot.is_calibration] == [7]


def test_a_boot_that_loses_three_workers_fails_with_what_each_reported(tmp_path: Path, stage: Stage) -> None:
    def dies(boot: Boot) -> Iterator[Notice]:
        if boot.task.directory.name != "boot1":
            yield from honest(boot)
            return
        yield boot.tell(Progress(f"{boot.worker.name} boots its last guest"))
        stage.kill(boot.worker)

    for name in ("a", "b", "c", "d"):
        stage.join(name, guests=1, script=dies)
    play = Play(tmp_path, jobs_of(tmp_path, 3), stage)
    ledger = play.run()
    for id_ in cells_of(play.jobs[0]).values():
        record = ledger.records[id_]
        assert (record.status, record.worker, record.parameters["kernel_release"]) == ("failed", None, "6.1.0")
        assert (record.reason or "").startswith("the boot has lost 3 workers. ")
        dead = [worker.name for worker in stage.workers.values() if not worker.is_alive]
        assert len(dead) == 3
        for name in dead:
            heard = f"{name}: it has left the fleet; its last report: {name} boots its last guest"
            assert heard in (record.reason or "")
    assert {ledger.records[id_].status for job in play.jobs[1:] for id_ in cells_of(job).values()} == {"ok"}


def test_what_each_of_three_workers_reported_has_room(tmp_path: Path, stage: Stage) -> None:
    def stumbles(boot: Boot) -> Iterator[Notice]:
        progress = boot.tell(Progress("\x1b" * 3000))
        return iter([progress, boot.end(LabError(f"{boot.worker.name} stumbles {'x' * 3000}"))])

    for name in ("a", "b", "c"):
        stage.join(name, script=stumbles)
    for record in Play(tmp_path, jobs_of(tmp_path, 1), stage).run().records.values():
        reason = record.reason or ""
        assert all(f"{name}: {name} stumbles x" in reason for name in ("a", "b", "c"))
        assert reason.count("; its last report: ") == 3


def test_a_worker_whose_task_ends_oddly_has_lost_the_boot(tmp_path: Path, stage: Stage) -> None:
    ends = {"a": CancelledError("boot1-1"), "b": RuntimeError("a fault\nof the worker's"), "c": KeyError("x")}

    def ends_oddly(boot: Boot) -> Iterator[Notice]:
        return iter([boot.tell(Progress(BEGINS)), boot.end(ends[boot.worker.name])])

    for name in ends:
        stage.join(name, script=ends_oddly)
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    reasons = {record.reason for record in play.run().records.values()}
    assert len(reasons) == 1
    (reason,) = reasons
    for what in ("a: CancelledError: boot1-1", "b: RuntimeError: a fault", "c: KeyError: 'x'"):
        assert what in (reason or "")


def test_a_boot_that_ends_without_all_of_its_outcomes_is_lost(tmp_path: Path, stage: Stage) -> None:
    def lazy(boot: Boot) -> Iterator[Notice]:
        return once(iter([boot.tell(Progress(BEGINS)), boot.end()]), boot)

    stage.join("left", script=lazy)
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    play.run()
    assert len(started(stage, "boot1")) == 2
    assert any("some of the boot's messages are missing" in line for line in play.lines.said)


# --- messages ---------------------------------------------------------------------------------------------------------


def test_late_messages_are_dropped(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 3), stage)

    def again() -> None:
        under_way = {boot.attempt for boot in stage.boots.values()}
        for item in stage.past[-40:]:
            if isinstance(item, Message | Ended) and attempt_of(item) not in under_way:
                stage.inbox.put(item)

    stage.before_step = again
    ledger = play.run()
    assert [len(started(stage, job.name)) for job in play.jobs] == [1, 1, 1]
    assert sum(isinstance(event, Progress) for _, event in ledger.events) == 3


def test_a_cell_of_which_the_outcome_is_missing_is_measured_again(tmp_path: Path, stage: Stage) -> None:
    def forgets(boot: Boot) -> Iterator[Notice]:
        said = list(honest(boot))
        del said[3]  # the first outcome
        return once(iter(said), boot)

    stage.join("left", guests=1, script=forgets)
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    play.run()
    assert started(stage, "boot1") == [("left", ["none", "kprobe", "djprobe"]), ("left", ["none"])]


def test_the_steps_of_a_worker_are_those_of_its_boot(tmp_path: Path, stage: Stage) -> None:
    def logs(boot: Boot) -> Iterator[Notice]:
        yield boot.tell(Progress(BEGINS))
        yield boot.tell(StepLine("boot ..."))
        for cell in boot.task.cells:
            yield boot.tell(StepLine(f"  measure {cell.probe} (1.0 s)"))
            yield boot.tell(CellRecorded(record_of(cell)))
        yield boot.tell(StepLine("boot (3.0 s)"))
        yield boot.end()

    stage.join("left", guests=1, script=logs)
    lines: list[str] = []
    with step_echo(lines.append):
        Play(tmp_path, jobs_of(tmp_path, 1), stage).run()
    measured = [f"boot1:   measure {probe} (1.0 s)" for probe in ("none", "kprobe", "djprobe")]
    assert [line[10:] for line in lines if "boot1:" in line] == ["boot1: boot ...", *measured, "boot1: boot (3.0 s)"]
    assert not any("calibration" in line for line in lines)


def test_malformed_message_is_reported_and_does_no_harm(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)

    def noise() -> None:
        for junk in (None, b"\xff", {"attempt": "boot1"}, sent("nobody-1", Progress("x")), {1: 2}):
            stage.inbox.put(Message(junk))

    stage.inbox.put(Ended("nobody-1"))
    stage.inbox.put(Joined(min(stage.workers)))
    stage.before_step = noise
    ledger = play.run()
    assert [event for event in ledger.of("boot1") if isinstance(event, Progress)] == [
        Progress("boot1, debian-686 on pentium4", "left")
    ]
    assert "warning: a worker sent an invalid message" in play.lines.warnings[0]


@pytest.mark.parametrize(
    "what", ["another cell", "twice", "another probe", "another kernel", "another parameter", "a parameter less"]
)
def test_a_worker_that_sends_another_outcome_than_it_was_asked_for_is_retired(
    tmp_path: Path, stage: Stage, what: str
) -> None:
    def cheats(boot: Boot) -> Iterator[Notice]:
        yield boot.tell(Progress(BEGINS))
        first, *_ = boot.task.cells
        right = record_of(first)
        wrong = {
            "another cell": record_of(replace(first, id="pentium4/debian-686/none/count")),
            "twice": right,
            "another probe": record_of(replace(first, probe="djprobe")),
            "another kernel": record_of(replace(first, spec=kernel_spec("debian-686-pae"))),
            "another parameter": record_of(replace(first, parameters={"call": "getpid"})),
            "a parameter less": record_of(replace(first, parameters={})),
        }[what]
        if what == "twice":
            yield boot.tell(CellRecorded(right))
        yield boot.tell(CellRecorded(wrong))
        raise AssertionError("it was not cancelled")

    stage.join("z", script=cheats)
    stage.join("right")
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    ledger = play.run()
    cheated = [record.worker for record in ledger.records.values()].count("z")
    assert cheated == (what == "twice")  # it was right, as the recount finds
    assert any(line.startswith("warning: z is retired: it sent an outcome of") for line in play.lines.warnings)


@pytest.mark.parametrize("name", ["../../lab.sqlite", "/etc/passwd", "events"])
def test_a_worker_that_names_a_file_elsewhere_is_retired(tmp_path: Path, stage: Stage, name: str) -> None:
    def cheats(boot: Boot) -> Iterator[Notice]:
        return iter([boot.tell(Progress(BEGINS)), boot.tell(FileMessage(name=name, content=b"x"))])

    stage.join("z", script=cheats)
    stage.join("right")
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    ledger = play.run()
    assert {record.worker for record in ledger.records.values()} == {"right"}
    assert [path.name for path in (tmp_path / "boot1").iterdir()] == ["guest5.console"]
    assert any(line.startswith("warning: z is retired: a worker sent a file called") for line in play.lines.warnings)


@pytest.mark.parametrize(
    ("bound", "most", "content", "why"),
    [
        ("MOST_FILES", 3, b"x", "it sent more than 3 files of one boot"),
        ("MOST_BYTES", 3 << 20, bytes(1 << 20), "it sent files of more than 3 MiB of one boot"),
    ],
)
def test_a_worker_sends_no_more_than_a_boot_leaves(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch, bound: str, most: int, content: bytes, why: str
) -> None:
    monkeypatch.setattr(f"orchestrator.fleet.fleet_executor.{bound}", most)

    def floods(boot: Boot) -> Iterator[Notice]:
        for number in range(1000):
            yield boot.tell(FileMessage(name=f"flood{number}", content=content))

    stage.join("z", script=floods)
    stage.join("right")
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    play.run()
    assert len(list((tmp_path / "boot1").glob("flood*"))) == 3
    assert any(f"z is retired: {why}" in line for line in play.lines.warnings)


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_a_worker_whose_host_fails_gets_no_more_and_is_believed(tmp_path: Path, stage: Stage) -> None:
    def full(boot: Boot) -> Iterator[Notice]:
        script = honest(boot)
        for _ in range(4):
            yield next(script)
        yield boot.end(HostError("there is no room left"))

    stage.join("z", guests=1, script=full)
    stage.join("right", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 4), stage)
    ledger = play.run()
    assert [record.worker for record in ledger.records.values()].count("z") == 1
    assert sum(boot.worker.name == "z" for boot in stage.started) == 2  # the calibration and one boot
    assert "warning: z is retired: there is no room left" in play.lines.warnings


def test_an_error_of_usage_ends_the_run(tmp_path: Path, stage: Stage) -> None:
    def refuses(boot: Boot) -> Iterator[Notice]:
        return iter([boot.end(UsageError("the kernel is another one", where="boot1", hint="begin anew", detail=["a"]))])

    stage.join("left", script=refuses)
    with pytest.raises(UsageError, match="the kernel is another one") as caught:
        Play(tmp_path, jobs_of(tmp_path, 1), stage).read()
    assert (caught.value.where, caught.value.hint, list(caught.value.detail)) == ("boot1", "begin anew", ["a"])


def test_a_boot_that_no_worker_has_room_for_fails(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", memory_mib=2000)
    jobs = jobs_of(tmp_path, 2)
    large = jobs_of(tmp_path, 1, memory_mib=4096)[0]
    play = Play(tmp_path, [large, jobs[1]], stage)
    ledger = play.run()
    assert [ledger.records[id_].reason for id_ in cells_of(large).values()] == [
        "no worker has room for a guest of 4096 MiB: the largest has 1808 MiB"
    ] * 3
    assert {ledger.records[id_].status for id_ in cells_of(jobs[1]).values()} == {"ok"}


def test_the_one_worker_with_the_memory_gets_a_boot_again(tmp_path: Path, stage: Stage) -> None:
    def stumbles(boot: Boot) -> Iterator[Notice]:
        return once(iter([boot.tell(Progress(BEGINS)), boot.end(LabError("a hiccup"))]), boot)

    stage.join("large", memory_mib=8192, script=stumbles)
    stage.join("small", memory_mib=1024)
    Play(tmp_path, jobs_of(tmp_path, 1, memory_mib=4096), stage).run()
    assert [name for name, _ in started(stage, "boot1")] == ["large", "large"]


def test_times_are_measured_on_one_worker(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=1)
    stage.join("right", guests=1)
    ledger = Play(tmp_path, jobs_of(tmp_path, 4, clock="wall"), stage).run()
    assert len({record.worker for record in ledger.records.values()}) == 1


def killed_once(stage: Stage, play: Play, name: str, behind: str) -> None:
    """A worker is killed behind a boot, and another one is started when all others have waited a while."""

    def before() -> None:
        worker = next(one for one in stage.workers.values() if one.name == name)
        if worker.is_alive and behind in play.ledger.ended:
            stage.kill(worker)
        elif stage.silences >= 3 and [one.name for one in stage.workers.values()].count(name) == 1:
            stage.join(name, guests=worker.guests, memory_mib=worker.memory_mib)

    stage.before_step = before


def test_a_boot_that_only_a_killed_worker_has_room_for_waits_for_its_next_one(tmp_path: Path, stage: Stage) -> None:
    stage.join("large", guests=1, memory_mib=8192)
    stage.join("small", memory_mib=1024)
    play = Play(tmp_path, jobs_of(tmp_path, 3, memory_mib=4096), stage)
    killed_once(stage, play, "large", "boot1")
    records = play.run().records.values()
    assert {(record.status, record.worker) for record in records} == {("ok", "large")}


def test_times_wait_for_the_next_worker_of_that_name(tmp_path: Path, stage: Stage) -> None:
    stage.join("z", guests=1)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 3, clock="wall"), stage)
    killed_once(stage, play, "z", "boot1")
    assert {(record.status, record.worker) for record in play.run().records.values()} == {("ok", "z")}


def test_times_fail_where_their_worker_is_gone(tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.fleet.fleet_executor._PATIENCE", -1.0)
    stage.join("z", guests=1)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 3, clock="wall"), stage)

    def kill() -> None:
        if play.ledger.ended == ["boot1"]:
            host = {record.worker for record in play.ledger.records.values()}
            for worker in stage.workers.values():
                if worker.name in host and worker.is_alive:
                    stage.kill(worker)

    stage.before_step = kill
    ledger = play.run()
    failed = [record.reason for record in ledger.records.values() if record.status == "failed"]
    assert len(failed) == 6
    assert set(failed) == {"times are measured on one worker, z, and that does not work any more"}


def test_times_fail_where_their_worker_has_not_the_memory(tmp_path: Path, stage: Stage) -> None:
    """Others may have it."""
    stage.join("z", memory_mib=2000)
    stage.join("large", memory_mib=8192)
    (large,) = jobs_of(tmp_path, 1, memory_mib=4096, clock="wall")
    ledger = Play(tmp_path, [replace(large, timed_on="z")], stage).run()
    assert {record.reason for record in ledger.records.values()} == {
        "times are measured on one worker, z, and that has no room for a guest of 4096 MiB"
    }


def test_times_are_gone_on_with_on_the_worker_that_measured_them_before(tmp_path: Path, stage: Stage) -> None:
    for name in ("left", "right", "z"):
        stage.join(name, guests=1)
    jobs = [replace(job, timed_on="right") for job in jobs_of(tmp_path, 3, clock="wall")]
    assert {record.worker for record in Play(tmp_path, jobs, stage).run().records.values()} == {"right"}


def test_times_of_this_machine_are_not_gone_on_with_elsewhere(tmp_path: Path, stage: Stage) -> None:
    (job,) = jobs_of(tmp_path, 1, clock="wall")
    with pytest.raises(UsageError, match="were measured on this machine"):
        Play(tmp_path, [replace(job, timed_on="")], stage)


# --- who takes part ---------------------------------------------------------------------------------------------------


def test_a_worker_that_is_not_like_this_machine_does_not_take_part(tmp_path: Path, stage: Stage) -> None:
    stage.join("old", versions=HERE.model_copy(update={"qemu": "5.2"}))
    stage.join("odd", surplus=1.0)
    stage.join("right")

    def cannot(boot: Boot) -> Iterator[Notice]:
        return iter([boot.end(LabError("no /dev/null"))])

    stage.join("broken", calibrates=cannot)
    play = Play(tmp_path, jobs_of(tmp_path, 2), stage)
    assert {record.worker for record in play.run().records.values()} == {"right"}
    told = "\n".join(play.lines.warnings)
    assert "warning: old is not used: it has QEMU 5.2, and this machine has 7.2.15" in told
    assert "warning: odd is not used: its counts differ from this machine's:" in told
    assert "warning: broken is not used: its calibration did not end: no /dev/null" in told


def test_a_run_without_workers_ends(tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.fleet.fleet_executor._PATIENCE", -1.0)
    with pytest.raises(HostError, match="the fleet has no worker") as caught:
        Play(tmp_path, jobs_of(tmp_path, 1), stage).read()
    assert "--resume" in (caught.value.hint or "")


def test_a_minute_without_workers_begins_when_the_last_one_goes(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long its workers had so much to say before that the executor never waited."""
    seconds = SimpleNamespace(monotonic=lambda: 2.0 * stage.steps)
    monkeypatch.setattr("orchestrator.fleet.fleet_executor.time", seconds)
    worker = stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 5), stage)

    def kill() -> None:
        if "boot4" in play.ledger.ended and worker.is_alive:
            assert seconds.monotonic() > _PATIENCE
            assert stage.silences == 0
            stage.kill(worker)
        elif not worker.is_alive and stage.silences == 3 and len(stage.workers) == 1:
            stage.join("left", guests=1)  # the next one

    stage.before_step = kill
    assert {record.status for record in play.run().records.values()} == {"ok"}


def test_a_run_whose_workers_are_refused_ends_and_says_why(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.fleet.fleet_executor._PATIENCE", -1.0)
    stage.join("old", versions=HERE.model_copy(update={"python": "3.9"}))
    stage.kill(stage.join("dead"))
    with pytest.raises(HostError, match="no worker of the fleet is left") as caught:
        Play(tmp_path, jobs_of(tmp_path, 1), stage).read()
    assert caught.value.detail[0] == "old was refused: it has Python 3.9, and this machine has 3.11"
    assert "has gone: it has left the fleet" in caught.value.detail[1]


def test_a_run_whose_scheduler_is_lost_ends(tmp_path: Path, stage: Stage) -> None:
    stage.join("left")
    play = Play(tmp_path, jobs_of(tmp_path, 2), stage)

    def lose() -> None:
        stage.is_broken = bool(play.ledger.records)

    stage.before_step = lose
    with pytest.raises(LabError, match="the fleet's scheduler is gone"):
        play.read()
    assert play.ledger.records  # --resume goes on with the rest


@pytest.mark.parametrize(
    ("function", "error"),
    [
        ("calibrated_here", HostError("this machine cannot measure")),
        ("measured_here", RuntimeError("an error of ours")),
    ],
)
def test_an_error_on_this_machine_ends_the_run(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch, function: str, error: Exception
) -> None:
    def fails(*arguments: object) -> None:
        raise error

    monkeypatch.setattr(f"orchestrator.fleet.trust.{function}", fails)
    stage.join("left", guests=1)
    with pytest.raises(type(error), match=str(error)):
        Play(tmp_path, jobs_of(tmp_path, 2), stage).read()


def test_a_reader_that_stops_ends_all_boots(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=2)
    play = Play(tmp_path, jobs_of(tmp_path, 3), stage)
    with closing(play.executor.events()) as events:
        for _, event in events:
            if isinstance(event, CellRecorded):
                break
    assert stage.boots == {}
    assert len([boot for boot in stage.started if not boot.is_calibration]) == 2


class Cancelled(Exception):
    """What a signal raises."""


def cancelled() -> None:
    raise Cancelled


def test_an_interruption_ends_all_boots(tmp_path: Path, stage: Stage) -> None:
    stage.join("left", guests=2)
    play = Play(tmp_path, jobs_of(tmp_path, 3), stage)
    reported: list[ExecutorEvent] = []

    def read() -> None:
        for _, event in play.executor.events():
            reported.append(event)
            if isinstance(event, CellRecorded):
                play.executor._link.inbox.put(cancelled)

    with pytest.raises(Cancelled):
        read()
    assert reported
    assert stage.boots == {}


class GuestHere(Guest):
    """A guest of the client's that was never started, and remembers being ended."""

    def __init__(self) -> None:
        self.has_ended = False

    def abort(self) -> None:
        self.has_ended = True


def test_guests_of_the_client_end_with_the_run(tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    guests: dict[str, GuestHere] = {}

    def boots(session: Session) -> None:
        guest = guests[session.task.directory.name] = GuestHere()
        session.watch(guest)
        for cell in session.task.cells:
            session.emit(CellRecorded(record_of(cell)))
        if session.task.directory.name == "recount":
            play.executor._link.inbox.put(cancelled)
            sessions.append(session)

    sessions: list[Session] = []
    monkeypatch.setattr("orchestrator.fleet.trust.run_boot", boots)
    monkeypatch.setattr("orchestrator.fleet.trust.calibrated_here", calibrated_here)
    monkeypatch.setattr("orchestrator.fleet.trust.measured_here", measured_here)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 2), stage)
    with pytest.raises(Cancelled):
        play.read()
    assert {name: guest.has_ended for name, guest in guests.items()} == {"calibration": True, "recount": True}
    with pytest.raises(Stopped):  # none is begun behind the run's end
        sessions[0].watch(GuestHere())


# --- trust ------------------------------------------------------------------------------------------------------------


def counting_wrong_from(job: str, stage: Stage, name: str) -> None:
    """From this job on a worker counts one instruction too many."""

    def before() -> None:
        for boot in stage.started:
            if boot.worker.name == name and boot.task.directory.name == job:
                boot.worker.surplus = 1.0

    stage.before_step = before


def test_the_run_says_what_a_worker_that_counts_wrong_has_measured(tmp_path: Path, stage: Stage) -> None:
    stage.join("z", guests=1)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 5), stage)
    counting_wrong_from("boot1", stage, "z")
    with pytest.raises(LabError, match="measured again: the counts of z differ from this machine") as caught:
        play.read()
    play.ledger.check(play.jobs)  # all is stored
    wrong = [id_ for job in play.jobs for id_ in cells_of(job).values() if play.ledger.records[id_].worker == "z"]
    assert caught.value.what.startswith(f"{len(wrong)} cells ")
    difference, _, *named = caught.value.detail
    assert difference.startswith("z: ")
    assert " there and " in difference
    assert named == [*wrong[:8], *([f"and {len(wrong) - 8} more"] if len(wrong) > 8 else [])]


def test_what_was_compared_with_a_wrong_count_has_to_be_measured_again_too(tmp_path: Path, stage: Stage) -> None:
    first, second = jobs_of(tmp_path, 2)
    baseline = cells_of(first)["none"]
    cells = tuple(replace(cell, compared_with=(baseline,)) for cell in second.task.cells[:1]) + second.task.cells[1:]
    second = Job(replace(second.task, cells=cells), second.artifacts)
    stage.join("z", guests=1)
    stage.join("left", guests=1)
    play = Play(tmp_path, [first, second], stage)
    counting_wrong_from("boot1", stage, "z")
    with pytest.raises(LabError) as caught:
        play.read()
    assert started(stage, "boot1")[0][0] == "z"
    assert set(caught.value.detail[2:]) == {*cells_of(first).values(), cells_of(second)["none"]}


def test_a_worker_that_counts_wrong_is_found_out_though_it_has_gone(tmp_path: Path, stage: Stage) -> None:
    """Another worker of its name counts right."""

    def dies(boot: Boot) -> Iterator[Notice]:
        boot.worker.surplus = 1.0
        yield from islice(honest(boot), 4)
        stage.kill(boot.worker)
        stage.join("z", guests=1)

    stage.join("z", guests=1, script=dies)
    play = Play(tmp_path, jobs_of(tmp_path, 2), stage)
    with pytest.raises(LabError, match="3 cells must be measured again: the counts of z"):
        play.read()
    play.ledger.check(play.jobs)


def test_no_two_runs_call_their_boots_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker may still be ending a boot of the run before, or be doing one of another client's."""
    monkeypatch.setattr(
        "orchestrator.fleet.fleet_executor.id", lambda one: 1, raising=False
    )  # objects share addresses, too
    names = []
    for _ in range(2):
        stage = Stage()
        stage.join("left")
        Play(tmp_path, jobs_of(tmp_path, 1), stage).run()
        names += [boot.attempt for boot in stage.started]
    assert len(set(names)) == len(names)


def test_one_cell_of_each_worker_is_counted_again(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted: list[str] = []

    def measured(context: object, job: Job, watch: object) -> list[CellRecord]:
        counted.extend(cell.id for cell in job.task.cells)
        return [record_of(cell) for cell in job.task.cells]

    monkeypatch.setattr("orchestrator.fleet.trust.measured_here", measured)
    stage.join("z", guests=1)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 5), stage)
    ledger = play.run()
    assert play.lines.warnings == []
    assert sorted(ledger.records[id_].worker or "" for id_ in counted) == ["left", "z"]
    assert stage.silences == 0


def test_a_worker_that_cannot_be_checked_is_believed(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise HostError("there is no room for a guest")

    monkeypatch.setattr("orchestrator.fleet.trust.measured_here", fails)
    stage.join("left")
    play = Play(tmp_path, jobs_of(tmp_path, 1), stage)
    play.run()
    told = "warning: left could not be checked on this machine: there is no room for a guest"
    assert play.lines.warnings == [told]


def test_a_worker_whose_cells_fail_as_here_is_believed(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The exact clock repeats a failure, too."""

    def outcome(cell: Cell[Any], *, fails: bool) -> CellRecorded:
        return CellRecorded(without_number(cell, "failed", "no hits") if fails else record_of(cell))

    def says(boot: Boot) -> Iterator[Notice]:
        yield boot.tell(Progress(BEGINS))
        for cell in boot.task.cells:
            yield boot.tell(outcome(cell, fails=boot.worker.name == "right"))
        yield boot.end()

    def boots(session: Session) -> None:
        for cell in session.task.cells:
            session.emit(outcome(cell, fails=True))

    monkeypatch.setattr("orchestrator.fleet.trust.run_boot", boots)
    monkeypatch.setattr("orchestrator.fleet.trust.measured_here", measured_here)
    stage.join("z", guests=1, script=says)
    stage.join("right", guests=1, script=says)
    play = Play(tmp_path, jobs_of(tmp_path, 2), stage)
    with pytest.raises(LabError, match="again: the counts of z differ from this machine's"):
        play.read()


def test_a_worker_that_was_retired_does_not_come_back(tmp_path: Path, stage: Stage) -> None:
    def fails(boot: Boot) -> Iterator[Notice]:
        return iter([boot.end(HostError("there is no room left"))])

    z = stage.join("z", guests=1, script=fails)
    stage.join("left", guests=1)
    play = Play(tmp_path, jobs_of(tmp_path, 5), stage)

    def before() -> None:
        if any("z is retired" in line for line in play.lines.warnings) and len(stage.workers) == 2:
            stage.kill(z)
            stage.join("z", guests=1)

    stage.before_step = before
    assert {record.worker for record in play.run().records.values()} == {"left"}
    assert "warning: z is not used: a worker of this name was retired" in play.lines.warnings
    assert len([line for line in play.lines.warnings if "z is retired" in line]) == 1


def test_a_worker_that_only_comes_and_goes_is_refused(
    tmp_path: Path, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is replaced for ever; the run has another one to wait for only until then."""
    monkeypatch.setattr("orchestrator.fleet.fleet_executor._PATIENCE", -1.0)

    def dies(boot: Boot) -> Iterator[Notice]:
        stage.join("z", calibrates=dies)  # the next one
        return iter([Left(boot.worker.address)])

    stage.join("z", calibrates=dies)
    with pytest.raises(HostError, match="no worker of the fleet is left") as raised:
        Play(tmp_path, jobs_of(tmp_path, 1), stage).read()
    assert any("it has joined 5 times without completing a boot" in line for line in raised.value.detail)
