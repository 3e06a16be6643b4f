# SPDX-License-Identifier: GPL-2.0-only
"""Figures and proofs of many probes, from the output of the scripts in the guest (``images/unattended``)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.benchmarks.scaling.scaling_parameters import LEFT_OUT, PROBE_BYTES_TAKEN, STEP
from orchestrator.catalog.probes import BASELINE, CALL_PREFIX
from orchestrator.errors import EvidenceError
from orchestrator.profile.stored.cell_profile import Unit
from orchestrator.results.parameters import PROBE_BYTES_EXTRA, PROBE_BYTES_PLAIN
from orchestrator.run.script_steps import ScriptStep, of_command, parse_steps

STEPS = 10
"""Equal steps in which probes are registered, enabled, disabled and unregistered."""
TARGET = {arch: f"{prefix}sync" for arch, prefix in CALL_PREFIX.items()}
"""The function of the first event, which the scripts call."""
_TARGETS = 64
_ENOUGH_FOR_PAGES = 1000
"""Fewest probes in a step whose memory is large beside the kernel's per-CPU reserve of free pages."""
_CURVES = ("register", "enable", "disable", "unregister")


@dataclass(frozen=True)
class ScalingProof:
    """Observations of the first target: mechanism, bytes while armed and before, address, hits and calls.

    ``foreign_hits`` are unintended hits of probes while these were enabled or disabled.
    """

    mechanism: str
    live: str
    original: str
    address: int
    symbol: str
    hits: int
    calls: int
    foreign_hits: int | None = None


def mechanism_of(live: str) -> str:
    """The mechanism that live bytes (in hex) show. Raises EvidenceError for any other than a breakpoint or ftrace."""
    for byte, mechanism in (("cc", "int3"), ("e8", "ftrace")):
        if live.startswith(byte):
            return mechanism
    raise EvidenceError(f"at an enabled kprobe there is neither a breakpoint nor a call of the function tracer: {live}")


@dataclass(frozen=True)
class MarkedSteps:
    """The steps of a row's profile: their ``numbers`` among all marked steps, and the ``ticks`` of each.

    Together they did ``count`` of ``unit``. ``again`` is a step that repeated the work.
    """

    numbers: Sequence[int]
    ticks: Sequence[int]
    count: int
    unit: Unit
    again: int | None = None


@dataclass(frozen=True)
class ScalingFigures:
    """Samples in TSC units by row, BASELINE included, the parameters of each row's record and those of all records.

    The rows ``compared`` have an overhead over the baseline. ``marked`` has the steps of each row with a profile.
    """

    samples: Mapping[str, tuple[float, ...]]
    proof: ScalingProof
    compared: frozenset[str]
    facts: Mapping[str, int] = field(default_factory=dict)
    row_facts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    marked: Mapping[str, MarkedSteps] = field(default_factory=dict)


def read_driver(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` kprobes (``kpcache_driver.sh``), with all proofs checked. Raises EvidenceError.

    A sample of registering, enabling, disabling or unregistering is one of ten steps, timer ticks included. Hits are at
    functions that only the module calls, with interrupts off; they are spread evenly among the other probes.
    """
    steps = parse_steps(text)
    registering, enabling, disabling, unregistering = (of_command(steps, command, STEPS) for command in _CURVES)
    _, (check,), (restored,), (total,) = (
        of_command(steps, command, 1) for command in ("sieve", "check", "restored", "total")
    )
    alone, removed = of_command(steps, "alone", 2)
    calls = of_command(steps, "call", 9)
    bare_first, bare, alone_first, alone_warm, alone_again, disabled, first, warm, again = calls
    for step in (bare_first, bare, disabled):
        _check_hits(step, 0)
    for step in (alone_first, alone_warm, alone_again, first, warm, again):
        _check_hits(step, step.number("calls"))
    if registering[-1].number("registered") != probes or unregistering[-1].number("registered") != 0:
        raise EvidenceError(f"{registering[-1].number('registered')} kprobes were registered, not {probes}")
    live, original = check.hexadecimal("bytes"), removed.hexadecimal("bytes")
    mechanism = _mechanism(check, live, original, probes // 2)
    if restored.number("changed") or restored.hexadecimal("bytes") != original:
        raise EvidenceError(f"after unregistering, {restored.number('changed')} places have other bytes than before")
    each, halves = probes // STEPS, probes // 2 // STEPS
    rows = {
        BASELINE: [bare, disabled],
        "register": registering,
        "enable": enabling,
        "disable": disabling,
        "unregister": unregistering,
        "hit-alone": [alone_warm, alone_again],
        "hit-first": [first],
        "hit": [warm, again],
    }
    # A probe that cannot be enabled is replaced by the next one, so their number is in the output.
    done = {"register": each, "disable": halves, "unregister": each}
    samples = {
        row: tuple(
            step.number("taken") / (done.get(row) or step.positive("timed" if row == "enable" else "calls"))
            for step in mine
        )
        for row, mine in rows.items()
    }
    for row in (BASELINE, "hit-alone", "hit"):
        if len(set(samples[row])) != 1:
            raise EvidenceError(f"samples of one boot differ: {row}: {samples[row]}")
    facts = {
        "refused": registering[-1].number("refused"),
        LEFT_OUT: enabling[-1].number("left_out"),
        "breakpoints": check.number("int3"),
    }
    if mechanism == "int3":  # through the function tracer, an instruction is neither copied nor optimized
        facts[PROBE_BYTES_PLAIN] = total.number("probe_bytes")
        facts[PROBE_BYTES_EXTRA] = total.number("optimiser_bytes")
    if each >= _ENOUGH_FOR_PAGES:
        # Other kernel work sometimes frees pages; the median of the steps is the memory that registering takes.
        facts[PROBE_BYTES_TAKEN] = round(statistics.median(step.number("pages") for step in registering) * 4096 / each)
    enabled = sum(step.number("timed") for step in enabling)
    probes_of = {"register": probes, "unregister": probes, "enable": enabled, "disable": halves * STEPS}
    return ScalingFigures(
        samples=samples,
        proof=ScalingProof(
            mechanism=mechanism,
            live=live,
            original=original,
            address=int(alone.hexadecimal("target"), 16),
            symbol="lab_kpcache_driver.target_00",
            hits=warm.number("hits"),
            calls=warm.number("calls"),
            foreign_hits=sum(step.number("others") for step in (*enabling, *disabling)),
        ),
        facts=facts,
        compared=frozenset(samples) - {*_CURVES, BASELINE},
        row_facts={row: {STEP: each if row in ("register", "unregister") else halves} for row in _CURVES},
        marked=_marked(steps, {row: mine if row in _CURVES else mine[:1] for row, mine in rows.items()}, probes_of),
    )


def _marked(
    steps: Sequence[ScriptStep], rows: Mapping[str, Sequence[ScriptStep]], probes_of: Mapping[str, int]
) -> Mapping[str, MarkedSteps]:
    kept = [id(step) for step in steps if "ticks" in step.values]
    return {
        row: MarkedSteps(
            numbers=[kept.index(id(step)) for step in mine],
            ticks=[step.number("ticks") for step in mine],
            count=probes_of[row] if row in probes_of else sum(step.number("calls") for step in mine),
            unit="probe" if row in probes_of else "call",
        )
        for row, mine in rows.items()
        if all("ticks" in step.values for step in mine)
    }


def _check_hits(step: ScriptStep, expected: int) -> None:
    if not step.number("calls") or step.number("hits") != expected:
        raise EvidenceError(f"of {step.number('calls')} calls {step.number('hits')} were hits, not {expected}")


def _mechanism(check: ScriptStep, live: str, original: str, enabled: int) -> str:
    armed, int3, targets = (check.number(name) for name in ("armed", "int3", "targets"))
    if (armed, targets) != (enabled, _TARGETS) or live == original:
        raise EvidenceError(f"{armed} of {enabled} enabled kprobes and {targets} of {_TARGETS} targets are armed")
    mechanism = mechanism_of(live)
    # A kprobe on a function that ftrace must not trace is a breakpoint, even where the others use ftrace.
    if mechanism == "int3" and int3 != armed:
        raise EvidenceError(f"{int3} of {armed} kprobes are breakpoints, and the targets are {mechanism}")
    return mechanism


def read_events(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` events of tracefs (``kpcache_events.sh``), proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    shell = of_command(steps, "shell", 2)
    defining, enabling, disabling = (of_command(steps, command, STEPS) for command in ("define", "enable", "disable"))
    (check,), (original, live, _) = of_command(steps, "check", 1), _looks(steps)
    defined, enabled, disabled = (
        sum(step.number("counted") for step in done) for done in (defining, enabling, disabling)
    )
    if defined != probes:
        raise EvidenceError(f"{defined} of {probes} events were defined: the kernel has too few functions for them")
    if not check.number("enabled") == enabled == probes // 2 or live == original:
        raise EvidenceError(f"{check.number('enabled')} kprobes are enabled, of {enabled} events")
    if disabled != enabled:
        raise EvidenceError(f"{disabled} events were disabled, of {enabled}")
    done = {BASELINE: shell, "define": defining, "enable": enabling, "disable": disabling}
    halves = probes // 2 // STEPS
    return ScalingFigures(
        # Includes the time of refused events.
        samples={
            row: tuple(step.number("taken") / step.positive("counted") for step in mine) for row, mine in done.items()
        },
        proof=_events_proof(steps),
        compared=frozenset({"define", "enable", "disable"}),
        row_facts={"define": {STEP: probes // STEPS}, "enable": {STEP: halves}, "disable": {STEP: halves}},
    )


def _looks(steps: Sequence[ScriptStep]) -> list[str]:
    return [step.hexadecimal("bytes") for step in of_command(steps, "look", 3)]


def _events_proof(steps: Sequence[ScriptStep]) -> ScalingProof:
    """The proof of events: each call of the first event's function was a hit. Raises EvidenceError."""
    (check,), (removed,) = (of_command(steps, command, 1) for command in ("check", "remove"))
    original, live, restored = _looks(steps)
    if check.number("hits") != check.number("calls"):
        raise EvidenceError(f"of {check.number('calls')} calls {check.number('hits')} were hits")
    if removed.number("left") or restored != original:
        raise EvidenceError(f"after the events were removed, {removed.number('left')} kprobes were left")
    return ScalingProof(
        mechanism=mechanism_of(live),
        live=live,
        original=original,
        address=int(of_command(steps, "look", 3)[0].hexadecimal("site"), 16),
        symbol="sys_sync",
        hits=check.number("hits"),
        calls=check.number("calls"),
    )


_GROUPS, _GROUP = 10, 10
"""Groups of events that are timed as they are enabled: five before all other events, and five after them."""
_LOADS = (("calls", "with"), ("files", "with"), ("calls", "without"), ("files", "without"))
"""In the order of the script, each twice."""
_ROWS = {
    "calls": ("calls", "with"),
    "files": ("files", "with"),
    BASELINE: ("calls", "without"),
    "files-without": ("files", "without"),
}


def read_load(text: str, probes: int) -> ScalingFigures:
    """The figures of loads beside ``probes`` events (``kpcache_load.sh``), proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    enabling = of_command(steps, "enable", _GROUPS)
    (check,), (original, live, _) = of_command(steps, "check", 1), _looks(steps)
    if check.number("enabled") != probes // 2 or live == original:
        raise EvidenceError(f"{check.number('enabled')} kprobes are enabled, and not {probes // 2}")
    script_steps = of_command(steps, "load", 2 * len(_LOADS))
    if [step.arguments for step in script_steps] != [(*load, time) for load in _LOADS for time in ("first", "again")]:
        raise EvidenceError("the loads were not run in the script's order", detail=[str(step) for step in script_steps])
    loads = {load: script_steps[2 * at : 2 * at + 2] for at, load in enumerate(_LOADS)}
    return ScalingFigures(
        samples={
            "enable": tuple(step.number("taken") / _GROUP for step in enabling),
            **{row: tuple(float(step.number("real")) for step in loads[load]) for row, load in _ROWS.items()},
        },
        proof=_events_proof(steps),
        compared=frozenset({"calls"}),
        row_facts={"enable": {STEP: _GROUP}},
        marked={
            row: MarkedSteps(
                numbers=[2 * _LOADS.index(load)],
                ticks=[loads[load][0].number("tsc")],
                count=1,
                unit="run",
                again=2 * _LOADS.index(load) + 1,
            )
            for row, load in _ROWS.items()
        },
    )
