# SPDX-License-Identifier: GPL-2.0-only
"""The line on what calls returned that programs in the guest print (``images/guest/results.h``)."""

from __future__ import annotations

import re

from orchestrator.catalog.errnos import LARGEST
from orchestrator.errors import EvidenceError
from orchestrator.probes.call_results import MOST_VALUES, CallResults

_NUMBER = r"(\d{1,18})"
_WORD = r"0x[0-9a-f]{1,16}"
_LINE = re.compile(
    rf"results (timed|untimed|watched) observed={_NUMBER} failed={_NUMBER} before={_NUMBER} other={_NUMBER}"
    rf" last=({_WORD}) values=((?:{_WORD}:\d{{1,18}}(?:,(?!$)|$)){{0,{MOST_VALUES}}})"
)


def parse_results(line: str, name: str, entry: str) -> CallResults:
    """Read a line on the calls of this ``name`` (timed, untimed, watched), which entered the kernel by ``entry``.

    Raises EvidenceError for anything else, and for figures that contradict each other.
    """
    found = _LINE.fullmatch(line)
    if found is None or found[1] != name:
        raise _unexpected(line)
    # The 32-bit entries return a word of 32 bits; a 64-bit program extends its sign.
    bits = 64 if entry == "syscall" else 32
    pairs = [part.split(":") for part in found[7].split(",")] if found[7] else []
    values = tuple((_value(word, bits), int(calls)) for word, calls in pairs)
    observed, failed, before_failure, other = (int(found[group]) for group in range(2, 6))
    results = CallResults(observed, failed, before_failure, values, other, _value(found[6], bits))
    if not _is_consistent(results):
        raise _unexpected(line)
    return results


def _value(word: str, bits: int) -> int:
    value = int(word, 16) % (1 << bits)
    return value - (1 << bits) if value >= (1 << bits) - LARGEST else value


def _is_consistent(results: CallResults) -> bool:
    calls = dict(results.values)
    kept_failures = sum(count for value, count in calls.items() if value < 0)
    return (
        len(calls) == len(results.values)
        and all(calls.values())
        and sum(calls.values()) + results.other == results.observed
        and (not results.other or len(calls) == MOST_VALUES)
        and kept_failures <= results.failed <= kept_failures + results.other
        and results.before_failure <= results.observed - results.failed
        and (results.failed > 0 or results.before_failure == results.observed)
        and (results.last in calls or results.other > 0 or not results.observed)
    )


def _unexpected(line: str) -> EvidenceError:
    return EvidenceError("what the benchmark says of the calls' results is not what was expected", detail=[line[:300]])
