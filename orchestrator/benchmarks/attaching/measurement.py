# SPDX-License-Identifier: GPL-2.0-only
"""The record of one count of functions: instructions by QEMU's plugin, and what else the guest has found."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from orchestrator.benchmarks.attaching.figures import Attached, AttachFigures
from orchestrator.errors import EvidenceError
from orchestrator.experiment.cell import Cell
from orchestrator.profile.counts import CountedWork
from orchestrator.profile.profiled import Counter
from orchestrator.results import parameters
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence, valid_result
from orchestrator.run.boot import Session, identity, kernel_facts, without_number
from orchestrator.run.guests import CLOCKSOURCE
from orchestrator.run.unattended import Ending

_IPI_ROUNDS = re.compile(r"on_each_cpu_cond_mask")
"""What text_poke_sync() and the like call (kernel/smp.c); with one CPU it calls the function here."""
_GRACE_PERIODS = re.compile(r"synchronize_(?:s?rcu|rcu_tasks)(?:_expedited|_rude|_trace)?|rcu_barrier")
_MOST_GROWING = 3


@dataclass(frozen=True)
class Counted:
    """The instructions of attaching and of detaching; ``detach`` is None where attaching failed."""

    attach: CountedWork
    detach: CountedWork | None
    facts: Mapping[str, int | str]


def counted_by_count(counter: Counter, figures: AttachFigures) -> Mapping[int, Counted]:
    """What each count executed. Raises EvidenceError unless the clock agrees."""
    regions = iter(counter.regions)
    called = {
        (parameters.IPI_ROUNDS, parameters.DETACH_IPI_ROUNDS): _entries(counter, _IPI_ROUNDS),
        (parameters.GRACE_PERIODS, parameters.DETACH_GRACE_PERIODS): _entries(counter, _GRACE_PERIODS),
    }
    found: dict[int, Counted] = {}
    for count, one in figures.by_count.items():
        works = [
            counter.work([region], [step.number("ticks")]) for step, region in zip(one.marked, regions, strict=False)
        ]
        if len(works) != len(one.marked):
            raise EvidenceError(f"QEMU has kept no instructions of {one.wanted} functions")
        facts: dict[str, int | str] = {
            name: sum(counts.executed for code, counts in work.together.counts.items() if code.address in entries)
            for names, entries in called.items()
            for name, work in zip(names, works, strict=False)
        }
        found[count] = Counted(works[0], works[1] if len(works) > 1 else None, facts)
    attached = [count for count, one in figures.by_count.items() if one.held is not None]
    ascending = sorted(attached, key=lambda count: figures.by_count[count].wanted)
    by_function = ((count, _by_function(counter, found[count].attach)) for count in ascending)
    for (_, before), (more, now) in pairwise(by_function):
        if grows := growing(before, now):
            found[more] = replace(found[more], facts={**found[more].facts, parameters.GROWS: grows})
    return found


def _by_function(counter: Counter, work: CountedWork) -> Mapping[str, int]:
    """The instructions of each function of the kernel; of a module that is gone, of BPF and of programs together."""
    found: dict[str, int] = defaultdict(int)
    text = range(counter.symbols.address("_stext"), counter.symbols.address("_etext"))
    for code, counts in work.together.counts.items():
        function = counter.symbols.function_at(code.address) if code.address in text else None
        found["others" if function is None else function[1]] += counts.executed
    return found


def _entries(counter: Counter, pattern: re.Pattern[str]) -> frozenset[int]:
    return frozenset(counter.symbols.functions_like(pattern).values())


def growing(before: Mapping[str, int], now: Mapping[str, int]) -> str | None:
    """The functions with most of what is more; None where nothing is."""
    more = {name: executed - before.get(name, 0) for name, executed in now.items()}
    grown = sum(one for one in more.values() if one > 0)
    most = [name for name in sorted(more, key=lambda name: -more[name])[:_MOST_GROWING] if more[name] > 0]
    return ", ".join(f"{name[:50]} {100 * more[name] / grown:.1f} %" for name in most) or None


def attach_record(
    cell: Cell[Any],
    session: Session,
    figures: AttachFigures,
    counted: Counted,
    profile: ProfileEvidence | None,
    ending: Ending,
) -> CellRecord:
    """The record of a count, which is ``failed`` where attaching failed. Raises EvidenceError."""
    one = figures.by_count[cell.task.count]
    kernel, held = session.artifacts.kernel, one.held
    if held is None or counted.detach is None:
        return without_number(cell, "failed", _failure(one, cell.task.fault), kernel.release)
    if cell.task.fault != "none":
        raise EvidenceError(f"with fault '{cell.task.fault}' attaching to {one.wanted} functions did not fail")
    value = float(counted.attach.together.total)
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters={**cell.parameters, **kernel_facts(kernel), **counted.facts, **_facts(one, counted.detach)},
            status="ok",
            notes=session.setup(cell).notes,
            samples=(value,),
            value=value,
            evidence=Evidence(
                mechanism=cell.task.mechanism,
                probe_bytes=held.hexadecimal("live"),
                hits=held.number("hits"),
                int3=None,
                calls=held.number("calls"),
                hits_per_call=one.hits_per_call,
                restored=not one.after.number("changed"),
                clocksource=CLOCKSOURCE,
                original_bytes=held.hexadecimal("before"),
                address=f"{figures.address:#x}",
                symbol=figures.target,
                flag="",
                taint=ending.taint,
                batches=1,
                disturbed=0,
            ),
            text=ending.text,
            profile=profile,
        )


def _facts(one: Attached, detach: CountedWork) -> Mapping[str, int | float]:
    assert one.held is not None
    assert one.detach is not None
    return {
        parameters.ATTACHED_FUNCTIONS: one.wanted,
        parameters.DETACH: detach.together.total,
        parameters.ATTACH_NS: one.attach.number("ns"),
        parameters.DETACH_NS: one.detach.number("ns"),
        parameters.KEPT_BYTES: one.memory(one.held),
        parameters.LEFT_BYTES: one.memory(one.after),
        parameters.TEXT_BYTES: one.held.number("changed"),
        parameters.HIT: one.hit,
        parameters.HITS_PER_CALL: one.hits_per_call,
    }


def _failure(one: Attached, fault: str) -> str:
    wrong = f", of which number {one.wanted // 2 + 1} does not exist," if fault == "name" else ""
    return (
        f"attaching to {one.wanted} functions{wrong} {one.failure}; nothing is attached: the kernel lists no function, "
        "and all of its text is as before"
    )
