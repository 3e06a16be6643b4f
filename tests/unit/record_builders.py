# SPDX-License-Identifier: GPL-2.0-only
"""Result records for tests: the quickstart's cells as a real run has them, and any valid cell for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from orchestrator.catalog.reference import reference_table
from orchestrator.results.contract import CellRecord, RunRecord
from orchestrator.results.statistics import mean

RUN_ID = "20261121-014502-quickstart-1f3a"
LIST5 = "djprobe-2005/list5"
ENTRY_BYTES = "8b44240453"
COUNTS = {"none": 409.0, "kprobe": 1036.0, "jprobe": 1689.0, "djprobe": 462.0}
PROOFS: dict[str, dict[str, Any]] = {
    "none": {"mechanism": "none", "probe_bytes": ENTRY_BYTES, "hits": 0, "int3": 0},
    "kprobe": {"mechanism": "int3", "probe_bytes": "cc44240453", "int3": 10000},
    "jprobe": {"mechanism": "int3", "probe_bytes": "cc44240453", "int3": 15000},
    "djprobe": {"mechanism": "jmp", "probe_bytes": "e9e6c5b20a", "int3": 0, "detour": "0xcbbc0000-0xcbbc0040"},
}


def evidence(probe: str, **changes: Any) -> dict[str, Any]:
    """Build the evidence of a cell of the quickstart."""
    return {
        "hits": 5000,
        "calls": 5000,
        "restored": True,
        "clocksource": "tsc",
        "original_bytes": ENTRY_BYTES,
        "address": "0xc1093a15",
        "symbol": "__ia32_sys_gettimeofday+0x5",
        "flag": "",
        "taint": 0 if probe == "none" else 12288,
        "batches": 4,
        "disturbed": 0,
        **PROOFS[probe],
        **changes,
    }


def reference(probe: str, table: str = LIST5) -> dict[str, Any]:
    """Build the published figures for a probe."""
    published = reference_table(table)
    column = "baseline" if probe == "none" else probe
    value, overhead = published.average(column), published.overhead(column)
    return {"table": table, "value": value, "overhead": overhead, "unit": published.unit}


def fields(probe: str, **changes: Any) -> dict[str, Any]:
    """Build the fields of a valid cell of the quickstart, then apply ``changes``."""
    count = COUNTS[probe]
    overhead = count - COUNTS["none"]
    return {
        "id": f"pentium4/debian-686/{probe}/noop",
        "cpu": "pentium4",
        "smp": 1,
        "kernel": "debian-686",
        "probe": probe,
        "handler": "noop",
        "benchmark": "gtodbench",
        "metric": "cost per call",
        "clock": "instructions",
        "unit": "instructions",
        "status": "ok",
        "samples": [count] * 4,
        "value": count,
        "overhead": overhead,
        "interval": [overhead, overhead],
        "evidence": evidence(probe),
        **changes,
    }


def cell(probe: str, **changes: Any) -> CellRecord:
    """Build a valid cell of the quickstart."""
    return CellRecord.model_validate(fields(probe, **changes))


def failed(probe: str, reason: str, **changes: Any) -> CellRecord:
    """Build a cell of the quickstart that failed."""
    nothing: dict[str, Any] = {"samples": [], "value": None, "overhead": None, "interval": None, "evidence": None}
    return cell(probe, **{**nothing, "status": "failed", "reason": reason, **changes})


def run(*cells: CellRecord) -> RunRecord:
    """Build a run of these cells."""
    return RunRecord(run=RUN_ID, experiment="quickstart", cells=cells)


_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_COUNTS = st.integers(min_value=0, max_value=2**63 - 1)
_NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True)
_PHRASES = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=20)
_HEX = st.binary(min_size=1, max_size=16).map(bytes.hex)
_ADDRESSES = st.integers(min_value=0, max_value=2**64 - 1).map(hex)


@st.composite
def cells(draw: st.DrawFn) -> CellRecord:
    """Draw any cell that the contract allows."""
    probe = draw(st.sampled_from(sorted(COUNTS)))
    calls = draw(st.integers(min_value=1, max_value=2**63 - 1))
    original = draw(_HEX)
    proof = evidence(
        probe,
        probe_bytes=original if probe == "none" else draw(_HEX),
        original_bytes=original,
        calls=calls,
        hits=0 if probe == "none" else calls,
        address=draw(_ADDRESSES),
        clocksource=draw(_PHRASES),
        flag=draw(_PHRASES),
        taint=draw(_COUNTS),
        disturbed=draw(_COUNTS),
    )
    common: dict[str, Any] = {
        "id": "/".join(draw(st.lists(_NAMES, min_size=1, max_size=5))),
        "kernel": draw(_NAMES),
        "metric": draw(_PHRASES),
        "parameters": draw(st.dictionaries(_NAMES, _PHRASES | st.booleans() | _COUNTS | _NUMBERS, max_size=4)),
        "reference": draw(st.none() | st.just(reference(probe))),
    }
    if draw(st.booleans()):
        samples = draw(st.lists(_NUMBERS, min_size=1, max_size=8))
        interval = draw(st.none() | st.tuples(_NUMBERS, _NUMBERS).map(sorted))
        overhead = draw(st.none() | _NUMBERS)
        return cell(
            probe,
            samples=samples,
            value=mean(samples),
            overhead=overhead,
            interval=interval,
            evidence=proof,
            **common,
        )
    reason = draw(st.text(min_size=1).filter(str.strip))
    status = draw(st.sampled_from(["failed", "skipped", "unsupported"]))
    return failed(probe, reason, status=status, evidence=draw(st.sampled_from([None, proof])), **common)
