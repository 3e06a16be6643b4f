# SPDX-License-Identifier: GPL-2.0-only
"""Figures of loads beside thousands of events of kprobes, from the output of ``images/unattended/kpcache_load.sh``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.benchmarks.scaling.figures import MarkedSteps, ScalingFigures, ScalingProof, mechanism_of
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError
from orchestrator.run.unattended_output import Step, of_command, parse_steps

_GROUPS, _GROUP = 10, 10
"""Groups of events that are enabled one after the other: five before all others, and five behind them."""
_LOOKS = 3
_LOADS = (("calls", "with"), ("files", "with"), ("calls", "without"), ("files", "without"))
"""In the order of the script, each twice."""
_ROWS = {
    "calls": ("calls", "with"),
    "files": ("files", "with"),
    BASELINE: ("calls", "without"),
    "files-without": ("files", "without"),
}


def read_load(text: str, probes: int) -> ScalingFigures:
    """The figures of ``probes`` events, all proofs checked. Raises EvidenceError."""
    steps = parse_steps(text)
    enabling = of_command(steps, "enable", _GROUPS)
    (check,), (removed,) = (of_command(steps, command, 1) for command in ("check", "remove"))
    looks = of_command(steps, "look", _LOOKS)
    original, live, restored = (step.hexadecimal("bytes") for step in looks)
    if check.number("enabled") != probes // 2 or live == original:
        raise EvidenceError(f"{check.number('enabled')} kprobes are enabled, and not {probes // 2}")
    if check.number("hits") != check.number("calls"):
        raise EvidenceError(f"of {check.number('calls')} calls {check.number('hits')} were hits")
    if removed.number("left") or restored != original:
        raise EvidenceError(f"after the events had been taken away, {removed.number('left')} kprobes were left")
    loads = _loads(steps)
    return ScalingFigures(
        samples={
            "enable": tuple(step.number("taken") / _GROUP for step in enabling),
            **{row: tuple(float(one.number("real")) for one in loads[load]) for row, load in _ROWS.items()},
        },
        proof=ScalingProof(
            mechanism=mechanism_of(live),
            live=live,
            original=original,
            address=int(looks[0].hexadecimal("site"), 16),
            symbol="sys_sync",
            hits=check.number("hits"),
            calls=check.number("calls"),
        ),
        facts={},
        compared=frozenset({"calls"}),
        row_facts={"enable": {"step": _GROUP}},
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


def _loads(steps: Sequence[Step]) -> Mapping[tuple[str, str], Sequence[Step]]:
    """Both runs of each load, with events and without."""
    found = of_command(steps, "load", 2 * len(_LOADS))
    expected = [(*load, time) for load in _LOADS for time in ("first", "again")]
    if [step.arguments for step in found] != expected:
        raise EvidenceError("the loads were not run in the script's order", detail=[str(step) for step in found])
    return {load: found[2 * at : 2 * at + 2] for at, load in enumerate(_LOADS)}
