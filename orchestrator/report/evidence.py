# SPDX-License-Identifier: GPL-2.0-only
"""The evidence printed below a table: the proof that each number measured what its name states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from orchestrator.counted import counted
from orchestrator.report.figures import number
from orchestrator.report.findings import listed
from orchestrator.results.contract import CellRecord, Evidence

UNKNOWN = "unknown"
"""Printed in place of a count of traps that were others' as well."""

_SHOWN_BYTES = 5  # as long as a jump


@dataclass(frozen=True)
class Proof:
    """One cell's evidence: its name, the mechanism at the probe point, the live bytes there, and what was checked."""

    name: str
    mechanism: str
    live: str
    facts: Sequence[str]


@dataclass(frozen=True)
class ProofList:
    """The proofs of the cells measured at one place."""

    place: str
    proofs: Sequence[Proof]


def hit_facts(evidence: Evidence) -> list[str]:
    """Return the facts of a counting pass of calls, with a probe or without."""
    calls = counted(evidence.calls, "call")
    if evidence.mechanism == "none":
        return [f"no probe, {calls}"]
    each = f" x {evidence.hits_per_call}" if evidence.hits_per_call != 1 else ""
    facts = [f"{evidence.hits} hits = {calls}{each}"] if evidence.hits_per_call else [f"no hit in {calls}"]
    if evidence.others:
        facts.append(f"{evidence.others} hits by others")
    if evidence.recorded is not None:
        facts.append(f"{evidence.recorded} events read back")
    if evidence.int3:
        facts.append(f"{number(evidence.int3 / evidence.hits)} int3 a hit")
    facts.append("bytes restored")
    if evidence.detour:
        facts.append(f"detour {evidence.detour}")
    if evidence.disturbed:
        facts.append(f"disturbed batches repeated: {evidence.disturbed}")
    return facts


def proof_lists(
    cells: Sequence[CellRecord],
    name: Callable[[CellRecord], str],
    facts: Callable[[Evidence], Sequence[str]] = hit_facts,
) -> list[ProofList]:
    """Return the evidence of all cells that are ok, in their order.

    ``name`` gives a cell's name in the table, ``facts`` what its evidence shows.
    """
    proved = [(cell, cell.evidence) for cell in cells if cell.status == "ok" and cell.evidence]
    lists = []
    for (symbol, clocksource), group in groupby(proved, lambda pair: (pair[1].symbol, pair[1].clocksource)):
        proofs = [Proof(name(cell), evidence.mechanism, _live(evidence), facts(evidence)) for cell, evidence in group]
        lists.append(ProofList(f"Evidence at {symbol} (clocksource {clocksource})", proofs))
    return lists


def traps_per_hit(cell: CellRecord) -> float | None:
    """Return the breakpoint traps that a hit took; None without hits or without a count of traps."""
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or evidence.int3 is None or not evidence.hits:
        return None
    return evidence.int3 / evidence.hits


def untold_traps(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """A sentence on the valid cells whose traps are not known because others hit the point while they were counted."""
    hit = [cell for cell in cells if hides_traps(cell)]
    if hit:
        others = sum(cell.evidence.others or 0 for cell in hit if cell.evidence is not None)
        came = f"{counted(others, 'hit')} by others" if others else "hits by others"
        yield (
            f"int3 a hit is {UNKNOWN} for {listed([name(cell) for cell in hit])}: {came} "
            "came while the hits were counted, and QEMU counts the traps of all."
        )


def hides_traps(cell: CellRecord) -> bool:
    """Whether others hit a valid cell's point, so that the traps that QEMU counted are not its own alone.

    A module that does not count their hits has hidden them where its traps are no whole number a hit.
    """
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or cell.parameters.get("accelerator") == "kvm":
        return False
    hits_by_others = bool(evidence.others) or (evidence.others is None and evidence.mechanism == "int3")
    return evidence.int3 is None and hits_by_others


def _live(evidence: Evidence) -> str:
    return bytes.fromhex(evidence.probe_bytes)[:_SHOWN_BYTES].hex(" ")
