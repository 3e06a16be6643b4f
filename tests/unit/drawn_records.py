# SPDX-License-Identifier: GPL-2.0-only
"""Any valid result record, for hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from record_builders import COUNTS, cell, evidence, failed, reference

from orchestrator.results.contract import CellRecord
from orchestrator.results.statistics import mean

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
