# SPDX-License-Identifier: GPL-2.0-only
"""Evidence in a report: the facts that prove a cell's figure, and the counts of breakpoint traps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from orchestrator.plain_text import counted, listed
from orchestrator.report.figures import number
from orchestrator.results.contract import CellRecord, Evidence
from orchestrator.results.parameters import ACCELERATOR

UNKNOWN = "unknown"
"""Printed in place of a count of traps that includes other processes' traps."""
_SHOWN_BYTES = 5  # as long as a jump


@dataclass(frozen=True)
class CellProof:
    """One cell's evidence: its name, the mechanism and live bytes at the probe point, and the checked facts."""

    name: str
    mechanism: str
    live: str
    facts: Sequence[str]


@dataclass(frozen=True)
class ProofList:
    """The proofs of cells at one place."""

    place: str
    proofs: Sequence[CellProof]


def hit_facts(evidence: Evidence) -> list[str]:
    """The facts of a counting pass, with or without a probe."""
    calls = counted(evidence.calls, "call")
    if evidence.mechanism == "none":
        return [f"no probe, {calls}"]
    each = f" x {evidence.hits_per_call}" if evidence.hits_per_call != 1 else ""
    facts = [f"{evidence.hits} hits = {calls}{each}"] if evidence.hits_per_call else [f"no hit in {calls}"]
    if evidence.others:
        facts.append(f"{counted(evidence.others, 'hit')} by others")
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


def proof_lists(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> list[ProofList]:
    """The evidence of all cells that are ok, in their order; ``name`` gives a cell's name in the table."""
    proved = [(cell, cell.evidence) for cell in cells if cell.status == "ok" and cell.evidence]
    lists = []
    for (symbol, clocksource), group in groupby(proved, lambda pair: (pair[1].symbol, pair[1].clocksource)):
        proofs = []
        for cell, evidence in group:
            live = bytes.fromhex(evidence.probe_bytes)[:_SHOWN_BYTES].hex(" ")
            proofs.append(CellProof(name(cell), evidence.mechanism, live, hit_facts(evidence)))
        lists.append(ProofList(f"Evidence at {symbol} (clocksource {clocksource})", proofs))
    return lists


def traps_per_hit(cell: CellRecord) -> float | None:
    """Breakpoint traps per hit; None without hits or without a count of traps."""
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or evidence.int3 is None or not evidence.hits:
        return None
    return evidence.int3 / evidence.hits


def unknown_traps(cells: Sequence[CellRecord], name: Callable[[CellRecord], str]) -> Iterator[str]:
    """A sentence on the valid cells whose traps are unknown because of other processes' hits."""
    hit = [cell for cell in cells if has_unknown_traps(cell)]
    if hit:
        foreign_hits = sum(cell.evidence.others or 0 for cell in hit if cell.evidence is not None)
        hits = counted(foreign_hits, "hit") if foreign_hits else "hits"
        yield (
            f"int3 a hit is {UNKNOWN} for {listed([name(cell) for cell in hit])}: QEMU's count of traps includes "
            f"{hits} by other processes."
        )


def has_unknown_traps(cell: CellRecord) -> bool:
    """Whether QEMU's count of a valid cell's traps includes hits by other processes.

    A module that does not count such hits has no count of traps if it is not a multiple of its hits.
    """
    evidence = cell.evidence
    if cell.status != "ok" or evidence is None or ACCELERATOR.of(cell) == "kvm":
        return False
    hits_by_others = bool(evidence.others) or (evidence.others is None and evidence.mechanism == "int3")
    return evidence.int3 is None and hits_by_others
