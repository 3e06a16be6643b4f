# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, their call stacks and their source lines in the formats of other programs, and as flame graphs.

What takes call stacks raises UsageError for a profile without any.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from typing import Any

from orchestrator.profile.stored.cell_profile import CellProfile


def folded_text(profile: CellProfile) -> str:
    """Folded stacks: names separated by semicolons, and the last one's instructions in all calls."""
    return "".join(f"{stack.names} {stack.executed}\n" for stack in profile.known_stacks())


def _samples(profile: CellProfile) -> tuple[Sequence[str], Sequence[tuple[Sequence[int], int]]]:
    """The functions; stacks of their indices, the program first, with the last one's instructions in all calls."""
    indices: dict[str, int] = {}
    stacks = [
        ([indices.setdefault(name, len(indices)) for name in stack.names.split(";")], stack.executed)
        for stack in profile.known_stacks()
        if stack.executed > 0  # others execute less than an empty batch
    ]
    return list(indices), stacks


_SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"


def speedscope_text(profile: CellProfile) -> str:
    """JSON for speedscope, with instructions per call."""
    functions, stacks = _samples(profile)
    weights = [executed / profile.calls for _, executed in stacks]
    sampled = {
        "type": "sampled",
        "name": f"{profile.cell}: instructions per {profile.unit}",
        "unit": "none",
        "startValue": 0,
        "endValue": sum(weights),
        "samples": [stack for stack, _ in stacks],
        "weights": weights,
    }
    shared = {"frames": [{"name": name} for name in functions]}
    return json.dumps({"$schema": _SPEEDSCOPE, "shared": shared, "profiles": [sampled]})


def pprof_bytes(profile: CellProfile) -> bytes:
    """A ``perftools.profiles.Profile``, compressed, with the instructions of all calls; a comment says of how many.

    Field numbers are those of proto/profile.proto of github.com/google/pprof.
    """
    functions, stacks = _samples(profile)
    texts = ["", "instructions", "count", f"{profile.cell}: {profile.calls} {profile.unit}s", *functions]
    numbers = range(1, len(functions) + 1)
    parts: list[tuple[int, int | bytes]] = [
        (1, _message((1, 1), (2, 2))),
        *(
            (2, _message(*((1, 1 + function) for function in reversed(stack)), (2, executed)))
            for stack, executed in stacks
        ),
        *((4, _message((1, number), (4, _message((1, number))))) for number in numbers),
        *((5, _message((1, number), (2, len(texts) - len(functions) + number - 1))) for number in numbers),
        *((6, text.encode()) for text in texts),
        (13, 3),
    ]
    return gzip.compress(_message(*parts), mtime=0)


def _message(*fields: tuple[int, int | bytes]) -> bytes:
    """A message in protobuf's encoding: numbers of fields, with bytes or integers that are not negative."""
    encoded = bytearray()
    for number, value in fields:
        if isinstance(value, int):
            encoded += _varint(number << 3) + _varint(value)
        else:
            encoded += _varint(number << 3 | 2) + _varint(len(value)) + value
    return bytes(encoded)


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + _varint(value >> 7)


# Version 60 of src/types/profile.ts of github.com/firefox-devtools/profiler, which reads all older versions.
_META = {"product": "orchestrator", "version": 27, "preprocessedProfileVersion": 60, "interval": 1, "startTime": 0}
_MORE_META = {"processType": 0, "stackwalk": 0, "symbolicated": True, "markerSchema": []}
_THREAD = {"isMainThread": True, "processType": "default", "pid": "1", "tid": 1, "pausedRanges": []}
_TIMES = {"processStartupTime": 0, "processShutdownTime": None, "registerTime": 0, "unregisterTime": None}
_COLOURS = {"Kernel": "yellow", "Modules": "orange", "Program": "blue", "Other": "grey"}


def firefox_text(profile: CellProfile) -> str:
    """JSON for Firefox Profiler, with instructions per call. On its time line each stack has a millisecond."""
    functions, stacks = _samples(profile)
    programs = {symbol.name for symbol in profile.symbols if symbol.place == "user"}
    categories = [1 if name.endswith("]") else 2 if name in programs else 0 for name in functions]
    nodes: dict[tuple[int | None, int], int] = {}
    innermost: list[int | None] = []
    for stack, _ in stacks:
        innermost.append(None)
        for function in stack:
            innermost[-1] = nodes.setdefault((innermost[-1], function), len(nodes))
    weights = [executed / profile.calls for _, executed in stacks]
    size, names = len(functions), [*range(len(functions))]
    frames = _table(size, func=names, category=categories, subcategory=0, address=-1, inlineDepth=0)
    shared = {
        "stringArray": functions,
        "stackTable": _table(len(nodes), prefix=[above for above, _ in nodes], frame=[name for _, name in nodes]),
        "frameTable": frames | _table(size, line=None, column=None, nativeSymbol=None, innerWindowID=None),
        "funcTable": _table(size, name=names, isJS=False, relevantForJS=False, resource=-1)
        | _table(size, source=None, lineNumber=None, columnNumber=None),
        "resourceTable": _table(0, type=0, lib=0, name=0, host=0),
        "nativeSymbols": _table(0, libIndex=0, address=0, name=0, functionSize=0),
        "sources": _table(0, id=0, filename=0),
    }
    samples = _table(len(stacks), stack=innermost, time=[*range(len(stacks))], weight=weights)
    thread = {"name": profile.cell, "samples": {**samples, "weightType": "samples"}} | _THREAD | _TIMES
    thread["markers"] = _table(0, data=0, name=0, startTime=0, endTime=0, phase=0, category=0)
    colours = [{"name": name, "color": colour, "subcategories": ["Other"]} for name, colour in _COLOURS.items()]
    meta = _META | _MORE_META | {"categories": colours}
    return json.dumps({"meta": meta, "libs": [], "shared": shared, "threads": [thread]})


def _table(length: int, **columns: Any) -> dict[str, Any]:
    """A table by column; a value that is no list is in all rows."""
    return {"length": length} | {
        key: column if isinstance(column, list) else [column] * length for key, column in columns.items()
    }
