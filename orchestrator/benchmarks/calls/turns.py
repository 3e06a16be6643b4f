# SPDX-License-Identifier: GPL-2.0-only
"""Calls that all CPUs of a guest make in turns: instructions on each CPU, and lines that move between their caches."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from orchestrator.benchmarks.calls.call_programs import Calls
from orchestrator.benchmarks.calls.call_results import phrase
from orchestrator.benchmarks.calls.cell_work import MOST_PASSES, Work
from orchestrator.benchmarks.calls.samples import Measurement
from orchestrator.errors import EvidenceError
from orchestrator.profile.places import Places, titled
from orchestrator.profile.profiled import Counter
from orchestrator.profile.turns import Turns, read_turns, turns_of
from orchestrator.results.parameters import CONTENDED, CONTENDED_LINES, MOVED, MOVED_BY, ON_EACH_CPU
from orchestrator.results.statistics import mean
from orchestrator.run.guests import check_clocksource
from orchestrator.steps import step


def take_turns(work: Work) -> tuple[Measurement, Mapping[str, str | int | float]]:
    """The instructions of a call, as the mean of all CPUs, and what the record says of the CPUs.

    Raises EvidenceError unless all samples are equal: on each CPU, and in each place where lines move.
    """
    guest, workload, cpus = work.ready.guest, work.workload, work.cell.smp
    assert isinstance(workload, Calls)
    counter = Counter(guest, work.ready.symbols, work.setup.module)
    with step("count calls in turns"):
        # A tick of QEMU's that changes from one CPU to the next, ten a second, may fall into a call.
        for _ in range(MOST_PASSES):
            mark = counter.mark()
            entry, batches = workload.take_turns(
                guest, cpus=cpus, repeats=max(2, work.cell.repeats), time_limit=work.deadline.left()
            )
            with counter.evaluating():
                places = counter.places(workload.program)
                samples = turns_of(read_turns(guest.counts_file, mark), batches, cpus, partial(_title, places))
            if all(one == samples[0] for one in samples):
                break
        else:
            raise EvidenceError(
                "samples of calls in turns differ: calls must cost the same each time", detail=[*map(str, samples)]
            )
    check_clocksource(guest)
    values = tuple(mean(one.instructions) for one in samples)
    measured = Measurement(
        samples=values,
        nanoseconds=values,
        entry=entry,
        calls=batches[-1].calls,
        batches=len(samples),
        disturbed=sum(one.disturbed for one in batches[1:]),
        number=workload.number,
    )
    return measured, _facts(samples[0])


def _title(places: Places, address: int) -> str:
    return titled(places.owner(address).function)


def _facts(turns: Turns) -> Mapping[str, str | int | float]:
    moved_by = ", ".join(f"{name} {moved:.10g}" for name, moved in turns.by_place.items())
    return {
        ON_EACH_CPU: phrase(", ".join(f"{one:.10g}" for one in turns.instructions)),
        MOVED: turns.moved,
        CONTENDED: turns.contended,
        CONTENDED_LINES: turns.lines,
        **({MOVED_BY: phrase(moved_by)} if moved_by else {}),
    }
