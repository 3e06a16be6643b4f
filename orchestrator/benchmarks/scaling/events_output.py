# SPDX-License-Identifier: GPL-2.0-only
"""Figures of thousands of kprobes through tracefs, from the output of ``images/unattended/kpcache_events.sh``."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.benchmarks.scaling.figures import ScalingFigures, ScalingProof, mechanism_of
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.run.unattended_output import Step, of_command, parse_steps

TARGET = {"i386": "__ia32_sys_sync", "x86_64": "__x64_sys_sync"}
"""The function of the first event, which the script calls."""
_STEPS = 10


def read_events(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` events, all proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    shell = of_command(steps, "shell", 2)
    defining, enabling, disabling = (of_command(steps, command, _STEPS) for command in ("define", "enable", "disable"))
    (check,), (removed,) = (of_command(steps, command, 1) for command in ("check", "remove"))
    original, live, restored = (step.hexadecimal("bytes") for step in of_command(steps, "look", 3))
    defined, enabled, disabled = (
        sum(step.number("counted") for step in done) for done in (defining, enabling, disabling)
    )
    if defined != probes:
        raise EvidenceError(f"{defined} of {probes} events were defined: the kernel has too few functions for them")
    if not check.number("enabled") == enabled == probes // 2 or live == original:
        raise EvidenceError(f"{check.number('enabled')} kprobes are enabled, of {enabled} events")
    if disabled != enabled:
        raise EvidenceError(f"{disabled} events were disabled, of {enabled}")
    if check.number("hits") != check.number("calls"):
        raise EvidenceError(f"of {check.number('calls')} calls {check.number('hits')} were hits")
    if removed.number("left") or restored != original:
        raise EvidenceError(f"after the events had been taken away, {removed.number('left')} kprobes were left")
    return ScalingFigures(
        samples={
            BASELINE: _each(shell),
            "define": _each(defining),
            "enable": _each(enabling),
            "disable": _each(disabling),
        },
        proof=ScalingProof(
            mechanism=mechanism_of(live),
            live=live,
            original=original,
            address=int(of_command(steps, "look", 3)[0].hexadecimal("site"), 16),
            symbol="sys_sync",
            hits=check.number("hits"),
            calls=check.number("calls"),
        ),
        facts={},
        compared=frozenset({"define", "enable", "disable"}),
        row_facts={
            "define": {"step": probes // _STEPS},
            "enable": {"step": probes // 2 // _STEPS},
            "disable": {"step": probes // 2 // _STEPS},
        },
    )


def _each(steps: Sequence[Step]) -> tuple[float, ...]:
    """The cost of each event that was done; the time of refused ones is included."""
    return tuple(step.number("taken") / step.positive("counted") for step in steps)
