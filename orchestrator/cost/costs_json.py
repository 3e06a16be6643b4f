# SPDX-License-Identifier: GPL-2.0-only
"""What ``cost --format json`` prints (docs/cost.md), made from measured costs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from orchestrator.cost.costs import Cost, problem, verdict
from orchestrator.cost.reference import Reference
from orchestrator.results.contract import CONTRACT_OF_COMPARISONS, RunRecord, Status
from orchestrator.results.parameters import (
    BPF_CODE,
    BPF_EXECUTED,
    BPF_EXECUTED_LINES,
    BPF_INSTRUCTIONS,
    BPF_LEAVES_AT,
    BPF_LINES,
    BPF_MACHINE_CODE,
    BPF_MAP_STATES,
    BPF_STACK,
    BPF_VERIFIED,
)
from orchestrator.results.printed_json import Printed


class PrintedProgram(Printed):
    """A program of a tool in the calls of a cost."""

    name: str
    """The program's name."""
    attached: str | None
    """How and where the kernel says that it is attached."""
    runs_per_call: float
    """How often a call runs it."""
    instructions: float | None
    """Instructions of its own code in a call; null without a profile."""


class PrintedCost(Printed):
    """What a hit of a subject costs on one kernel."""

    subject: str
    """What the user named."""
    program: str | None
    """The program of a BPF file."""
    kernel: str
    """The kernel."""
    cell: str
    """The id of the cell in the run."""
    status: Status
    """The status of the cell."""
    reason: str | None
    """Why there is no number, or no verdict."""
    instructions: float | None
    """Instructions of a hit."""
    interval: list[float] | None
    """The interval of the instructions, its lower end first."""
    instructions_when_full: float | None
    """Instructions of a hit that finds no room in the buffer that it sends records to, where that is another number."""
    change: float | None
    """Instructions that a hit takes more than in the reference."""
    function: str | None
    """The function of a module without a probe: a hit is its execution, with what it calls."""
    alone: float | None
    """Instructions of a hit in the function itself."""
    mechanism: str | None
    """How the kernel calls it."""
    hits: int | None
    """Counted hits."""
    hits_per_call: int | None
    """Hits of one call."""
    nanoseconds: float | None
    """The modelled time of a hit."""
    nanoseconds_from: float | None
    """The lower end of the band of the modelled time."""
    nanoseconds_to: float | None
    """The upper end of the band."""
    verified: int | None
    """Instructions of a BPF program that the verifier walked."""
    program_instructions: int | None
    """BPF instructions of the program."""
    machine_code_bytes: int | None
    """Bytes of its machine code."""
    stack_bytes: int | None
    """Bytes of its stack."""
    machine_instructions: int | None
    """Instructions of its machine code."""
    executed_instructions: int | None
    """How many of those the hits execute."""
    lines: int | None
    """Lines of its source that have code."""
    executed_lines: int | None
    """How many of those the hits execute."""
    leaves_at: str | None
    """Where each hit leaves it without having done anything: ``opens.bpf.c:31``."""
    programs: list[PrintedProgram]
    """Of a tool the programs that calls run; its own instructions are those of a call."""
    map_states: str | None
    """What hits find in maps with keys: ``seen: insert, counts: keys are there, starts: no keys``."""
    exceeded: list[str]
    """Sentences on figures that exceed their budgets."""
    notes: list[str]
    """What was done with a BPF program's maps, and what its hits do with them."""
    new: str | None
    """Why the reference has nothing to compare it with."""
    unknown: str | None
    """Why what the reference has cannot be compared."""

    @classmethod
    def of(cls, cost: Cost) -> PrintedCost:
        band = None if cost.time is None else cost.time.interval
        return cls(
            subject=cost.subject.source,
            program=cost.subject.name or None,
            kernel=cost.cell.kernel,
            cell=cost.cell.id,
            status=cost.cell.status,
            reason=cost.reason,
            instructions=cost.hit,
            interval=[end / cost.of_call for end in cost.cell.interval] if cost.cell.interval else None,
            instructions_when_full=cost.when_full,
            change=cost.difference,
            function=None if cost.own_function is None else cost.own_function.name,
            alone=None if cost.own_function is None else float(cost.own_function.alone),
            mechanism=cost.mechanism or None,
            hits=cost.hits,
            hits_per_call=None if cost.hits is None else cost.of_call,
            nanoseconds=cost.nanoseconds,
            nanoseconds_from=None if band is None else band[0] / cost.of_call,
            nanoseconds_to=None if band is None else band[1] / cost.of_call,
            verified=BPF_VERIFIED.of(cost.cell),
            program_instructions=BPF_INSTRUCTIONS.of(cost.cell),
            machine_code_bytes=BPF_MACHINE_CODE.of(cost.cell),
            stack_bytes=BPF_STACK.of(cost.cell),
            machine_instructions=BPF_CODE.of(cost.cell),
            executed_instructions=BPF_EXECUTED.of(cost.cell),
            lines=BPF_LINES.of(cost.cell),
            executed_lines=BPF_EXECUTED_LINES.of(cost.cell),
            leaves_at=BPF_LEAVES_AT.of(cost.cell),
            programs=[
                PrintedProgram(
                    name=program.name,
                    attached=program.attached or None,
                    runs_per_call=program.runs,
                    instructions=program.instructions,
                )
                for program in cost.programs
            ],
            map_states=BPF_MAP_STATES.of(cost.cell),
            exceeded=list(cost.exceeded),
            notes=list(cost.notes),
            new=cost.new or None,
            unknown=cost.unknown or None,
        )


class PrintedCosts(Printed):
    """The costs of a run, and whether they pass."""

    contract: Literal[2] = CONTRACT_OF_COMPARISONS
    """The version of these keys and words."""
    run: str
    """The id of the run."""
    costs: list[PrintedCost]
    """The costs, in the order of subjects and kernels."""
    passes: bool
    """Whether each cost is measured, compared, and within what is allowed."""
    verdict: str
    """One sentence on all costs."""
    against: str | None
    """What the costs are compared with, as the user named it."""
    gone: list[str]
    """Sentences on what only the reference has."""

    @classmethod
    def of(
        cls, record: RunRecord, costs: Sequence[Cost], missed: Sequence[str] = (), reference: Reference | None = None
    ) -> PrintedCosts:
        return cls(
            run=record.run,
            costs=[PrintedCost.of(cost) for cost in costs],
            passes=not problem(costs, missed),
            verdict=verdict(costs, missed).partition(" ")[2],
            against=None if reference is None else reference.title,
            gone=[] if reference is None else list(reference.gone),
        )
