# SPDX-License-Identifier: GPL-2.0-only
"""Time lines of calls as text like the function graph tracer's, as a trace for Perfetto, and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

from orchestrator.plain_text import counted
from orchestrator.report.chart import KERNEL, MODULE, USER
from orchestrator.report.html.frame import render
from orchestrator.results.timeline import Span, Timeline

_BEFORE = 3
"""Equal lines that are shown before the first difference."""
_NO_LINE = ""


class _Line(NamedTuple):
    """The beginning of a span, or its end without ``length``; lines of the same ``key`` are the same code."""

    at: int
    length: int | None
    own: int
    key: tuple[int, str, str]

    @property
    def text(self) -> str:
        depth, _, text = self.key
        return f"{self.at:6} {'' if self.length is None else self.length:>6} |  {'  ' * depth}{text}"


def _lines(timeline: Timeline) -> Iterator[_Line]:
    open_: list[Span] = []
    for span, following in zip_longest(timeline.spans, timeline.spans[1:]):
        name = f"{span.name}()" if span.place in ("kernel", "module") else span.name
        is_leaf = following is None or following.depth <= span.depth
        marks = ", ".join(filter(None, [span.entered, span.left if is_leaf else ""]))
        text = f"{name}{';' if is_leaf else ' {'}{f'  /* {marks} */' if marks else ''}"
        yield _Line(span.start, span.instructions, span.own, (span.depth, span.name, text))
        if not is_leaf:
            open_.append(span)
        while open_ and (following is None or following.depth <= open_[-1].depth):
            one = open_.pop()
            yield _Line(one.end, None, one.own, (one.depth, one.name, f"}}{f'  /* {one.left} */' if one.left else ''}"))


_HEADING = "    at length |  function"


def text(timeline: Timeline) -> str:
    """Each function where it begins, in instructions, and how many it takes with those that it calls."""
    title = f"{timeline.cell}: one call, {counted(timeline.instructions, 'instruction')}, each one nanosecond"
    return "\n".join([title, "", _HEADING, *(line.text for line in _lines(timeline))]) + "\n"


def difference_text(before: Timeline, after: Timeline) -> str:
    """Two calls side by side, from the first difference on."""
    ones, others = list(_lines(before)), list(_lines(after))
    matcher = SequenceMatcher(None, [one.key for one in ones], [other.key for other in others], autojunk=False)
    rows: list[tuple[_Line | None, _Line | None]] = []
    for _, first, behind, second, end in matcher.get_opcodes():
        rows += zip_longest(ones[first:behind], others[second:end])
    signs = [_sign(*row) for row in rows]
    title = f"{before.cell} ({before.instructions}) -> {after.cell} ({after.instructions} instructions)"
    start = next((number for number, sign in enumerate(signs) if sign != " "), None)
    if start is None:
        return f"{title}\n\nBoth calls are in the same functions, for as many instructions.\n"
    shown = [(one.text if one else _NO_LINE, other.text if other else _NO_LINE) for one, other in rows]
    width = max(map(len, [_HEADING, *(left for left, _ in shown[start:])]))
    at = next(line.at for line in rows[start] if line is not None)
    lines = [f"{left:<{width}} {sign} {right}".rstrip() for sign, (left, right) in zip(signs, shown, strict=True)]
    return "\n".join(
        [
            title,
            f"The first {counted(start, 'line')} are equal: until instruction {at}.",
            "< and >: only in one of them; |: another way through the same function",
            "",
            f"{_HEADING:<{width}}   {_HEADING}",
            *lines[max(0, start - _BEFORE) :],
            "",
        ]
    )


def _sign(one: _Line | None, other: _Line | None) -> str:
    if one is None or other is None:
        return ">" if one is None else "<"
    return " " if one.key == other.key and one.own == other.own else "|"


def trace(timelines: Sequence[Timeline]) -> str:
    """Trace Event Format (JSON), in microseconds, with a thread for each cell."""
    named = {"name": "process_name", "ph": "M", "pid": 1, "args": {"name": "calls: an instruction is a nanosecond"}}
    events: list[dict[str, object]] = [named]
    for thread, timeline in enumerate(timelines, start=1):
        named = {"name": "thread_name", "ph": "M", "pid": 1, "tid": thread, "args": {"name": timeline.cell}}
        events += [named, *(_event(span, thread) for span in timeline.spans)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, indent=1) + "\n"


def _event(span: Span, thread: int) -> dict[str, object]:
    how = {"entered by": span.entered, "left by": span.left}
    return {
        "name": span.name,
        "cat": span.place,
        "ph": "X",
        "ts": span.start / 1000,
        "dur": span.instructions / 1000,
        "pid": 1,
        "tid": thread,
        "args": {
            "address": f"{span.address:#x}",
            "own instructions": span.own,
            **{key: value for key, value in how.items() if value},
        },
    }


# The page: the program above, and each function below the one that calls it, as wide as its instructions.

_ROW = 18
_LETTER = 6.7
"""Width of a letter in pixels."""
_COLOURS = {"user": USER, "module": MODULE}


@dataclass(frozen=True)
class _Chart:
    """A picture of a time line, ``scale`` pixels an instruction."""

    timeline: Timeline
    scale: float

    @property
    def height(self) -> int:
        return (2 + max(span.depth for span in self.timeline.spans)) * _ROW

    @property
    def width(self) -> float:
        return self.timeline.instructions * self.scale

    @property
    def ticks(self) -> Sequence[int]:
        step = 10 ** len(str(int(self.timeline.instructions / 40)))
        return range(0, self.timeline.instructions, step)

    def top(self, span: Span) -> int:
        return (1 + span.depth) * _ROW

    def colour(self, span: Span) -> str:
        return _COLOURS.get(span.place, KERNEL)

    def title(self, span: Span) -> str:
        how = ", ".join(f"{word} by {mark}" for word, mark in (("entered", span.entered), ("left", span.left)) if mark)
        return (
            f"{span.name}: instructions {span.start} to {span.end}, {span.own} of {span.instructions} its own"
            f"{f'; {how}' if how else ''}"
        )

    def label(self, span: Span) -> str:
        room = int((span.instructions * self.scale - 6) / _LETTER)
        return span.name if len(span.name) <= room else f"{span.name[: room - 2]}.." if room > 4 else ""


_NARROWEST, _WIDEST = 1200, 30_000
"""Pixels of a chart."""
_USUAL_SCALE = 4.0


def page(timelines: Sequence[Timeline], text: str) -> str:
    """A page with a chart of each time line, and the ``text`` below."""
    most = max(one.instructions for one in timelines)
    scale = min(max(_NARROWEST / most, _USUAL_SCALE), _WIDEST / most)
    title = " and ".join(one.cell for one in timelines)
    charts = [_Chart(one, scale) for one in timelines]
    return render("timeline.html.j2", f"Time line of {title}", (), charts=charts, text=text)
