# SPDX-License-Identifier: GPL-2.0-only
"""Whether a claim holds for one table: measured and published figures are judged by the same formula."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from orchestrator.catalog.claims import Claim, MechanismClaim, RatioClaim, SizeClaim, TrapsClaim
from orchestrator.report.facts import Facts
from orchestrator.report.figures import BELOW_ZERO, NOTHING, UNDECIDED, number, ratio_figure


@dataclass(frozen=True)
class Comparison:
    """One figure of a claim: its label, its printed text, and whether the claim holds for it.

    ``holds`` is None where the figure is missing; a figure that is only printed beside others is not ``judged``.
    """

    label: str
    text: str
    holds: bool | None
    judged: bool = True


def compare(claim: Claim, facts: Facts) -> list[Comparison]:
    """Return the claim's figures: the same rows for any facts."""
    match claim:
        case RatioClaim():
            return [_ratio(claim, probe, facts) for probe in claim.of]
        case TrapsClaim():
            return [
                comparison
                for probe, expected in claim.int3_per_hit.items()
                for comparison in _traps(probe, expected, claim.single_step, facts)
            ]
        case SizeClaim():
            return _size(claim, facts)
        case MechanismClaim():
            return [_mechanism(claim, facts)]


def _ratio(claim: RatioClaim, probe: str, facts: Facts) -> Comparison:
    label = f"{probe} / {claim.to}"
    value, base = facts.overheads.get(probe), facts.overheads.get(claim.to)
    if value is None or base is None:
        return Comparison(label, NOTHING, None)
    if {probe, claim.to} & facts.undecided:
        return Comparison(label, UNDECIDED, None)
    if probe in facts.bands and claim.to in facts.bands:
        return _ratio_of_bands(claim, probe, facts)
    # The product, unlike the quotient, is also correct for a base below zero.
    enough = claim.at_least is None or value >= claim.at_least * base
    small = claim.at_most is None or value <= claim.at_most * base
    return Comparison(label, ratio_figure(value, base) if base > 0 else BELOW_ZERO, enough and small)


def _ratio_of_bands(claim: RatioClaim, probe: str, facts: Facts) -> Comparison:
    """Decided where the claim holds, or does not, for every pair of values within the two bands."""
    (low, high), (base_low, base_high) = facts.bands[probe], facts.bands[claim.to]
    label = f"{probe} / {claim.to}"
    text = ratio_figure(facts.overheads[probe], facts.overheads[claim.to])
    if low <= 0 or base_low <= 0:
        return Comparison(label, text, None)
    least, most = low / base_high, high / base_low
    at_least, at_most = claim.at_least or 0.0, claim.at_most or inf
    holds = True if at_least <= least and most <= at_most else None
    if most < at_least or least > at_most:
        holds = False
    return Comparison(label, f"{text} ({least:.2f} to {most:.2f})", holds)


def _traps(probe: str, expected: int, single_step: int, facts: Facts) -> list[Comparison]:
    label, without = f"{probe}: int3 a hit", f"{probe}: less the single step's"
    count = facts.traps.get(probe)
    if count is None:
        return [Comparison(label, NOTHING, None), Comparison(without, NOTHING, None, judged=False)]
    # Only what exceeds the document's count can be the single step's.
    rest = number(count - single_step) if count > expected else NOTHING
    return [
        Comparison(label, number(count), count == expected),
        Comparison(without, rest, None, judged=False),
    ]


def _size(claim: SizeClaim, facts: Facts) -> list[Comparison]:
    size, extra = facts.sizes.get(claim.of), facts.extra_bytes.get(claim.of)
    more = Comparison(f"{claim.of}: bytes more", NOTHING if extra is None else str(extra), None, judged=False)
    if size is None:
        return [Comparison(f"{claim.of}: times the size", NOTHING, None), more]
    holds = claim.at_least <= size <= claim.at_most
    return [Comparison(f"{claim.of}: times the size", f"{size:.2f}", holds), more]


def _mechanism(claim: MechanismClaim, facts: Facts) -> Comparison:
    mechanism, traps = facts.mechanisms.get(claim.probe), facts.traps.get(claim.probe)
    if mechanism is None or traps is None:
        return Comparison(claim.probe, NOTHING, None)
    holds = mechanism == claim.mechanism and traps == claim.int3_per_hit
    return Comparison(claim.probe, f"{mechanism}, {number(traps)} int3", holds)
