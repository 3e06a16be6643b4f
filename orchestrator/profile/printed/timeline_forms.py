# SPDX-License-Identifier: GPL-2.0-only
"""Time lines of calls as text like the function graph tracer's, as a trace for Perfetto, and as a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

from orchestrator.plain_text import counted
from orchestrator.profile.stored.timeline import Timeline, TimelineSpan
from orchestrator.report.chart import BOX_INK, GENERATED, KERNEL, MODULE, USER
from orchestrator.report.html.frame import render
from orchestrator.report.output import Output

_BEFORE = 3
"""Equal lines that are shown before the first difference."""


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
    open_: list[TimelineSpan] = []
    for span, following in zip_longest(timeline.spans, timeline.spans[1:]):
        name = f"{span.name}()" if span.place in ("kernel", "module") else span.name
        is_leaf = following is None or following.depth <= span.depth
        marks = ", ".join(filter(None, [span.entered, span.left if is_leaf else ""]))
        text = f"{name}{';' if is_leaf else ' {'}{f'  /* {marks} */' if marks else ''}"
        yield _Line(span.start, span.instructions, span.own, (span.depth, span.name, text))
        if not is_leaf:
            open_.append(span)
        while open_ and (following is None or following.depth <= open_[-1].depth):
            timeline_span = open_.pop()
            yield _Line(
                timeline_span.end,
                None,
                timeline_span.own,
                (
                    timeline_span.depth,
                    timeline_span.name,
                    f"}}{f'  /* {timeline_span.left} */' if timeline_span.left else ''}",
                ),
            )


_HEADING = "    at length |  function"


def text(timeline: Timeline) -> str:
    """Each function where it begins, in instructions, and how many it takes with those that it calls."""
    title = f"{timeline.cell}: one call, {counted(timeline.instructions, 'instruction')}, each one nanosecond"
    return "\n".join([title, "", _HEADING, *(line.text for line in _lines(timeline))]) + "\n"


def difference_text(before: Timeline, after: Timeline) -> str:
    """Two calls side by side, from the first difference on."""
    ones, other_lines = list(_lines(before)), list(_lines(after))
    matcher = SequenceMatcher(
        None, [line.key for line in ones], [other_line.key for other_line in other_lines], autojunk=False
    )
    rows: list[tuple[_Line | None, _Line | None]] = []
    for _, first, behind, second, end in matcher.get_opcodes():
        rows += zip_longest(ones[first:behind], other_lines[second:end])
    signs = [_sign(*row) for row in rows]
    title = f"{before.cell} ({before.instructions}) -> {after.cell} ({after.instructions} instructions)"
    start = next((number for number, sign in enumerate(signs) if sign != " "), None)
    if start is None:
        return f"{title}\n\nBoth calls are in the same functions, for as many instructions.\n"
    shown = [(line.text if line else "", other_line.text if other_line else "") for line, other_line in rows]
    first = max(0, start - _BEFORE)
    width = max(map(len, [_HEADING, *(left for left, _ in shown[first:])]))
    at = next(line.at for line in rows[start] if line is not None)
    lines = [f"{left:<{width}} {sign} {right}".rstrip() for sign, (left, right) in zip(signs, shown, strict=True)]
    return "\n".join(
        [
            title,
            f"The first {counted(start, 'line')} are equal: until instruction {at}.",
            "< and >: only in one of them; |: another way through the same function",
            "",
            f"{_HEADING:<{width}}   {_HEADING}",
            *lines[first:],
            "",
        ]
    )


def _sign(line: _Line | None, other_line: _Line | None) -> str:
    if line is None or other_line is None:
        return ">" if line is None else "<"
    return " " if line.key == other_line.key and line.own == other_line.own else "|"


def trace(timelines: Sequence[Timeline]) -> str:
    """Trace Event Format (JSON), in microseconds, with a thread for each cell."""
    events = [_named("process_name", 1, "calls: an instruction is a nanosecond")]
    for thread, timeline in enumerate(timelines, start=1):
        events += [_named("thread_name", thread, timeline.cell), *(_event(span, thread) for span in timeline.spans)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}) + "\n"


def _named(what: str, thread: int, name: str) -> dict[str, object]:
    return {"name": what, "ph": "M", "pid": 1, "tid": thread, "args": {"name": name}}


def _event(span: TimelineSpan, thread: int) -> dict[str, object]:
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


_COLOURS = {"user": USER, "module": MODULE, "kernel": KERNEL, "generated": GENERATED}
_NARROWEST, _WIDEST = 1200, 30_000
"""Pixels of a chart."""
_LEAST_SCALE = 1.0
"""Pixels of an instruction."""


def page(timelines: Sequence[Timeline], text: str) -> str:
    """A page with a chart of each time line, in which a function is below its caller, and the ``text``."""
    most = max(timeline.instructions for timeline in timelines)
    scale = min(max(_NARROWEST / most, _LEAST_SCALE), _WIDEST / most)
    step = 10 ** len(str(most // 40))
    title = f"Time line of {' and '.join(timeline.cell for timeline in timelines)}"
    chart = {"scale": scale, "step": step, "colours": _COLOURS, "ink": BOX_INK}
    return render("timeline.html.j2", title, (), timelines=timelines, text=text, **chart)


def write_text(timelines: Sequence[Timeline], output: Output) -> None:
    """Write the lines of one call, or two calls side by side."""
    output.text(_text(timelines))


def write_trace(timelines: Sequence[Timeline], output: Output) -> None:
    """Write a trace for Perfetto."""
    output.text(trace(timelines))


def write_html(timelines: Sequence[Timeline], output: Output) -> None:
    """Write a page."""
    output.text(page(timelines, _text(timelines)))


def _text(timelines: Sequence[Timeline]) -> str:
    return text(timelines[0]) if len(timelines) == 1 else difference_text(*timelines)
