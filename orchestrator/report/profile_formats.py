# SPDX-License-Identifier: GPL-2.0-only
"""Profiles, their call stacks and their source lines in the formats of other programs, and as flame graphs.

What takes call stacks raises UsageError for a profile without any.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from orchestrator.report.chart import BOX_INK, INK, KERNEL, MODULE, PAPER, USER
from orchestrator.report.profile_sheets import per_call
from orchestrator.results.call_tree import CallCost, call_tree
from orchestrator.results.stored_profile import NO_MISSES, CellProfile, SymbolProfile, known_sum


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


# "Callgrind Format Specification", version 1. A function's own instructions are exact by address. A call has what the
# callee and all that it calls execute, and, for stacks do not say more, the caller's first address. As callgrind does
# without --separate-recs, each call of a recursion counts.

_MISSES = ("I1mr", "D1mr", "D1mw", "L2m", "ITLBm", "DTLBm")
"""Misses of fetches, loads and stores in level 1, with cachegrind's names; of all in level 2; in the TLBs."""
_UNKNOWN = "desc: Calls: 1 where their number is not known"
"""callgrind_annotate takes 0 calls for none, and their instructions for the caller's own."""


def callgrind_text(profile: CellProfile) -> str:
    """The counts of all calls, and with stacks which function calls which.

    An object is the kernel, a module or the program; a module begins at its text.
    """
    details = ["Loads", "Stores", "Taken"] if profile.has_details else []
    events = ["Ir", *details, *(_MISSES if profile.caches else ())]
    counted = [(symbol, _counted(profile, symbol)) for symbol in profile.symbols]
    sums = [
        sum(values)
        for values in zip(*(counts for _, counts_of_symbol in counted for _, counts in counts_of_symbol), strict=True)
    ]
    lines = [
        "# callgrind format",
        "version: 1",
        "creator: orchestrator",
        f"cmd: {profile.cell} ({profile.calls} calls)",
        *([_UNKNOWN] if profile.stacks else []),
        "positions: instr",
        f"events: {' '.join(events)}",
        f"summary: {' '.join(map(str, sums))}",
        "fl=???",
    ]
    first = {symbol.title: symbol for symbol in reversed(profile.symbols)}
    edges = _edges(profile, first)
    for symbol, pairs in counted:
        lines += ["", *_function(first, symbol.title)]
        lines += [f"{symbol.address + offset:#x} {' '.join(map(str, counts))}" for offset, counts in pairs]
        lines += edges.pop(symbol.title, [])
    for caller, calls in edges.items():  # functions without instructions of their own
        lines += ["", *_function(first, caller), *calls]
    return "".join(f"{line}\n" for line in lines)


def _edges(profile: CellProfile, first: Mapping[str, SymbolProfile]) -> dict[str, list[str]]:
    """The lines of the calls of each function."""
    edges: dict[tuple[str, str], list[CallCost]] = defaultdict(list)

    def add(caller: CallCost) -> None:
        for cost in caller.called:
            edges[caller.name, cost.name].append(cost)
            add(cost)

    for program in call_tree(profile).called if profile.stacks else ():
        add(program)
    lines: dict[str, list[str]] = defaultdict(list)
    for (caller, callee), costs in edges.items():
        place, target = (first[title].address if title in first else 0 for title in (caller, callee))
        executed = int(sum(cost.total for cost in costs) * profile.calls)
        lines[caller] += [f"c{line}" for line in _function(first, callee)]
        lines[caller] += [
            f"calls={known_sum(cost.entered for cost in costs) or 1} {target:#x}",
            f"{place:#x} {executed}",
        ]
    return lines


def _function(symbols: Mapping[str, SymbolProfile], title: str) -> Sequence[str]:
    """The lines that name a function and its object."""
    name, _, module = title.removesuffix("]").partition(" [")
    return [f"ob={module or (symbols[title].place if title in symbols else 'kernel')}", f"fn={name}"]


def _counted(profile: CellProfile, symbol: SymbolProfile) -> Sequence[tuple[int, tuple[int, ...]]]:
    """The counts of each instruction by its offset, in the order of the events."""
    missed = {(misses.offset, misses.code): misses.misses for misses in symbol.misses}
    return [
        (
            instruction.offset,
            (
                instruction.executed,
                *((instruction.loads, instruction.stores, instruction.taken) if profile.has_details else ()),
                *(missed.get((instruction.offset, instruction.code), NO_MISSES) if profile.caches else ()),
            ),
        )
        for instruction in symbol.instructions
    ]


_NO_TITLE = re.compile(r"\W+", re.ASCII)
"""What a test's name must not have: geninfo accepts letters, digits and underscores."""
_BREAKS = re.compile(r"[\x00-\x1f\x7f]")
"""What would begin another line of the file."""


def lcov_text(lines: Mapping[str, Mapping[int, int]], test: str = "") -> str:
    """A tracefile of lcov, which genhtml, editors and CI services read: geninfo(1), section FILES.

    ``lines`` has by source file and line number how often each was executed, 0 for not at all.
    Lines below 1 are left out.
    """
    return "".join(f"{line}\n" for file in sorted(lines) for line in _lcov_record(file, lines[file], test))


def _lcov_record(file: str, lines: Mapping[int, int], test: str) -> Iterator[str]:
    yield f"TN:{_NO_TITLE.sub('_', test)}"
    yield f"SF:{_BREAKS.sub('?', file)}"
    known = {line: count for line, count in sorted(lines.items()) if line > 0}
    yield from (f"DA:{line},{count}" for line, count in known.items())
    yield f"LF:{len(known)}"
    yield f"LH:{sum(count > 0 for count in known.values())}"
    yield "end_of_record"


# A flame graph in the layout of Brendan Gregg's FlameGraph, without scripts and external references. A box is a call,
# as wide as its instructions, above its caller. The colours tell the program, modules and the kernel apart.

_WIDTH, _ROW, _MARGIN = 1200, 18, 28
_LETTER = 6.7
"""Width of a letter in the font below, in pixels."""
_NARROWEST = 0.3
"""The smallest width of a box in pixels."""


def flame_graph(profile: CellProfile) -> str:
    """A flame graph as SVG. Raises UsageError for a profile without stacks."""
    tree = call_tree(profile)
    programs = {symbol.name for symbol in profile.symbols if symbol.place == "user"}
    scale = _WIDTH / float(tree.total) if tree.total > 0 else 0.0
    bottom = _MARGIN + _rows(tree.called) * _ROW
    height = bottom + _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
            f'viewBox="0 0 {_WIDTH} {height}" font-family="monospace" font-size="11">',
            f'<rect width="{_WIDTH}" height="{height}" fill="{PAPER}"/>',
            _svg_text(f"{profile.cell}: {per_call(tree.total)} instructions per call", 18, 13),
            *_boxes(tree.called, 0.0, bottom, scale, programs),
            _svg_text("blue: the program; orange: modules; yellow: the kernel", bottom + 18, 11),
            "</svg>\n",
        ]
    )


def _rows(calls: Sequence[CallCost]) -> int:
    return max((1 + _rows(call.called) for call in calls if call.total > 0), default=0)


def _boxes(
    calls: Sequence[CallCost], left: float, bottom: float, scale: float, programs: Container[str]
) -> Iterator[str]:
    for call in calls:
        width = float(call.total) * scale
        if width >= _NARROWEST:
            colour = MODULE if call.name.endswith("]") else USER if call.name in programs else KERNEL
            yield _box(call, left, bottom - _ROW, width, colour)
            yield from _boxes(call.called, left, bottom - _ROW, scale, programs)
        left += max(width, 0.0)


def _svg_text(text: str, baseline: int, size: int) -> str:
    return (
        f'<text x="{_WIDTH // 2}" y="{baseline}" text-anchor="middle" font-size="{size}" fill="{INK}">'
        f"{escape(text)}</text>"
    )


def _box(call: CallCost, left: float, top: float, width: float, colour: str) -> str:
    room = int((width - 6) / _LETTER)
    label = call.name if len(call.name) <= room else call.name[: room - 2] + ".." if room > 4 else ""
    title = f"{call.name}: {per_call(call.total)} instructions per call, {per_call(call.own)} in its own code"
    return (
        f"<g><title>{escape(title)}</title>"
        f'<rect x="{left:.2f}" y="{top:.1f}" width="{width:.2f}" height="{_ROW - 1}" fill={quoteattr(colour)} '
        f'stroke="{PAPER}" stroke-width="0.5"/>'
        f'<text x="{left + 3:.2f}" y="{top + 13:.1f}" fill="{BOX_INK}">{escape(label)}</text></g>'
    )
