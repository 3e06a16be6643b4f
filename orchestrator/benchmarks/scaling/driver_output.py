# SPDX-License-Identifier: GPL-2.0-only
"""Figures and proofs of thousands of kprobes, from the output of ``images/unattended/kpcache_driver.sh``.

A sample of registering, enabling, disabling or unregistering is one of ten steps, timer ticks included. Hits are of
functions that only the module calls, with interrupts off, spread evenly among the other probes.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from orchestrator.benchmarks.scaling.figures import MarkedSteps, ScalingFigures, ScalingProof, mechanism_of
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.run.unattended_output import Step, of_command, parse_steps

STEPS = 10
_PAGE_BYTES = 4096
TARGETS = 64
_ENOUGH_FOR_PAGES = 1000
"""Probes in a step whose memory is large beside the kernel's per-CPU reserve of free pages."""
_CALLS = 9


def read_driver(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` probes, all proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    registering, enabling, disabling, unregistering = (
        of_command(steps, command, STEPS) for command in ("register", "enable", "disable", "unregister")
    )
    _, (check,), (restored,), (total,) = (
        of_command(steps, command, 1) for command in ("sieve", "check", "restored", "total")
    )
    alone, removed = of_command(steps, "alone", 2)
    bare_first, bare, alone_first, alone_warm, alone_again, disabled, first, warm, again = of_command(
        steps, "call", _CALLS
    )
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
    samples = {
        BASELINE: (_per_call(bare), _per_call(disabled)),
        "register": _per_probe(registering, each),
        # A probe that cannot be enabled is replaced by the next one.
        "enable": tuple(step.number("taken") / step.positive("timed") for step in enabling),
        "disable": _per_probe(disabling, halves),
        "unregister": _per_probe(unregistering, each),
        "hit-alone": (_per_call(alone_warm), _per_call(alone_again)),
        "hit-first": (_per_call(first),),
        "hit": (_per_call(warm), _per_call(again)),
    }
    for row in (BASELINE, "hit-alone", "hit"):
        if len(set(samples[row])) != 1:
            raise EvidenceError(f"samples of one boot differ: {row}: {samples[row]}")
    facts = {
        "refused": registering[-1].number("refused"),
        "left_out": enabling[-1].number("left_out"),
        "breakpoints": check.number("int3"),
    }
    if mechanism == "int3":  # through the function tracer, an instruction is neither copied nor optimized
        facts["probe_bytes_plain"] = total.number("probe_bytes")
        facts["probe_bytes_extra"] = total.number("optimiser_bytes")
    if each >= _ENOUGH_FOR_PAGES:
        # Other kernel work frees pages now and then: the median of the steps is the memory that registering takes.
        facts["probe_bytes_taken"] = round(
            statistics.median(step.number("pages") for step in registering) * _PAGE_BYTES / each
        )
    row_facts = {row: {"step": each if row in ("register", "unregister") else halves} for row in _CURVES}
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
            others=sum(step.number("others") for step in (*enabling, *disabling)),
        ),
        facts=facts,
        compared=frozenset(samples) - {*_CURVES, BASELINE},
        row_facts=row_facts,
        marked=_marked(
            steps,
            {
                BASELINE: [bare],
                "register": registering,
                "enable": enabling,
                "disable": disabling,
                "unregister": unregistering,
                "hit-alone": [alone_warm],
                "hit-first": [first],
                "hit": [warm],
            },
            {"enable": sum(step.number("timed") for step in enabling), "disable": halves * STEPS},
            probes,
        ),
    )


def _marked(
    steps: Sequence[Step], rows: Mapping[str, Sequence[Step]], probes_of: Mapping[str, int], probes: int
) -> Mapping[str, MarkedSteps]:
    """The steps of each row, by their place among those that QEMU's plugin has kept."""
    kept = [step for step in steps if "ticks" in step.values]
    return {
        row: MarkedSteps(
            numbers=[next(at for at, one in enumerate(kept) if one is step) for step in mine],
            ticks=[step.number("ticks") for step in mine],
            count=probes_of.get(row, probes) if row in _CURVES else sum(step.number("calls") for step in mine),
            unit="probe" if row in _CURVES else "call",
        )
        for row, mine in rows.items()
        if all("ticks" in step.values for step in mine)
    }


_CURVES = ("register", "enable", "disable", "unregister")


def _per_probe(steps: Sequence[Step], count: int) -> tuple[float, ...]:
    return tuple(step.number("taken") / count for step in steps)


def _per_call(step: Step) -> float:
    return step.number("taken") / step.positive("calls")


def _check_hits(step: Step, expected: int) -> None:
    if not step.number("calls") or step.number("hits") != expected:
        raise EvidenceError(f"of {step.number('calls')} calls {step.number('hits')} were hits, not {expected}")


def _mechanism(check: Step, live: str, original: str, enabled: int) -> str:
    armed, int3, targets = (check.number(name) for name in ("armed", "int3", "targets"))
    if (armed, targets) != (enabled, TARGETS) or live == original:
        raise EvidenceError(f"{armed} of {enabled} enabled kprobes and {targets} of {TARGETS} targets are armed")
    mechanism = mechanism_of(live)
    # A kprobe on a function that ftrace must not trace is a breakpoint, also where the others use ftrace.
    if mechanism == "int3" and int3 != armed:
        raise EvidenceError(f"{int3} of {armed} kprobes are breakpoints, and the targets are {mechanism}")
    return mechanism
