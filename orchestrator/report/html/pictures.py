# SPDX-License-Identifier: GPL-2.0-only
"""Pictures in pages, which follow the page's theme: charts, histories, flame graphs."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET  # the pictures are this program's own
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from importlib.util import find_spec
from itertools import groupby
from operator import itemgetter

from markupsafe import Markup

from orchestrator.plain_text import counted
from orchestrator.report.chart import INK, LINE, MEASURED, PAPER, QUIET_INK, STEP, Chart
from orchestrator.report.figures import signed_figure
from orchestrator.report.html.frame import part
from orchestrator.results.contract import Interval
from orchestrator.results.cost_history import History, HistoryPoint
from orchestrator.results.history_steps import Steps
from orchestrator.results.statistics import median

_CLASSES = {INK: "ink", QUIET_INK: "quiet", LINE: "line", PAPER: "paper"}
_LOCAL = re.compile(r"url\(#([^)]+)\)")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^)"]+)')
_FONT = re.compile(r"(?:(bold|\d+) )?([\d.]+px) (.+)")


def inline_picture(svg: str, name: str, title: str, description: str) -> Markup:
    """``svg`` as an element of a page with a title and a description for screen readers; ids begin with ``name``.

    Style attributes become separate attributes, since the page's content security policy forbids inline styles.
    """
    root = ET.fromstring(svg)  # noqa: S314
    referred = set(_REFERENCE.findall(svg))
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        element.attrib = dict(_attributes(element, name, referred))
        if element.text is not None and not element.text.strip():
            element.text = None
        element.tail = None if element.tail is None or not element.tail.strip() else element.tail
    for size in ("width", "height", "version"):
        root.attrib.pop(size, None)
    root.attrib |= {
        "class": "picture",
        "role": "img",
        "aria-labelledby": f"{name}-title {name}-description",
        "stroke-linejoin": "round",
    }
    # A screen reader reads the title and the description, not every label.
    for position, (tag, text) in enumerate([("title", title), ("desc", description)]):
        element = ET.Element(tag, {"id": f"{name}-{'title' if tag == 'title' else 'description'}"})
        element.text = text
        root.insert(position, element)
    return Markup(ET.tostring(root, encoding="unicode"))  # noqa: S704


def _attributes(element: ET.Element, name: str, referred: Container[str]) -> Iterator[tuple[str, str]]:
    declared = dict(_declarations(element.attrib.get("style", "")))
    classes = []
    for key, value in {**element.attrib, **declared}.items():
        key, value = _local(key), value.strip()
        if key in ("style", "type", "font-family") or (key == "id" and value not in referred):
            continue
        if key in ("fill", "stroke") and value.lower() in _CLASSES:
            classes.append(f"{key}-{_CLASSES[value.lower()]}")
        elif key == "id":
            yield key, f"{name}-{value}"
        elif key == "href":
            yield key, f"#{name}-{value.removeprefix('#')}"
        else:
            yield key, _LOCAL.sub(rf"url(#{name}-\1)", value)
    if _local(element.tag) == "text" and "fill" not in declared and "fill" not in element.attrib:
        classes.append("fill-ink")
    if classes:
        yield "class", " ".join(classes)


def _declarations(style: str) -> Iterator[tuple[str, str]]:
    for declaration in style.split(";"):
        key, colon, value = declaration.partition(":")
        if not colon:
            continue
        key, value = key.strip(), value.strip()
        font = _FONT.fullmatch(value) if key == "font" else None
        if font is None:
            yield key, value
            continue
        yield "font-size", font[2]
        if font[1]:
            yield "font-weight", font[1]


def _local(name: object) -> str:
    """A name without its namespace."""
    return str(name).rpartition("}")[2]


NOT_DRAWN = "Drawing charts needs matplotlib, which is not installed: pip install 'probe-lab[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


_MOST_CHARTS = 400
"""The size of the cache of charts, 6 MB."""
_charts: dict[tuple[str, str], Markup] = {}


def chart_picture(chart: Chart, name: str) -> Markup:
    """The chart as an element whose ids begin with ``name``. Needs matplotlib.

    Equal charts are drawn once: matplotlib takes 0.1 s for each.
    """
    from orchestrator.report.drawing import svg_text

    key = (name, repr(chart))
    if key not in _charts:
        if len(_charts) >= _MOST_CHARTS:
            _charts.clear()
        _charts[key] = inline_picture(svg_text(chart), name, chart.title, chart.subtitle)
    return _charts[key]


# The chart of a history. matplotlib would take 0.1 s and up to 180 kB for each, and a new run changes the charts of all
# metrics of its experiment.

_WIDTH, _HEIGHT = 960, 320
_TOP, _BOTTOM, _RIGHT = 44, 30, 16
_LETTER = 7.0
"""Width of a digit at the size of the labels, in pixels."""
_MANY = 100  # more points are drawn small
_TICKS = 6
_ROUND = 1e6  # steps between labels from which labels have an exponent
_MARGIN = 0.1
_LEAST = 1e-9
"""The smallest spread in instructions or nanoseconds."""
_MOST = 1e300
"""The limit of the vertical axis, so that the difference of its ends is finite."""


@dataclass(frozen=True)
class _Scale:
    """Maps values of an axis to pixels, clamped to its ends."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


@dataclass(frozen=True)
class Level:
    """The level of the runs from ``first`` to ``last``; ``change`` is the text of the step to it, or empty."""

    first: datetime
    last: datetime
    value: float
    change: str


def levels(steps: Steps) -> Sequence[Level]:
    """The levels of a history between its steps."""
    numbers, history_steps = steps.history.numbers, steps.ordered
    if not numbers:
        return []
    begins = [_when(numbers[0][0]), *(_when(step.after) for step in history_steps)]
    # Extended to the next step, because a gap would look like missing runs.
    ends = [*begins[1:], _when(numbers[-1][0])]
    values = (
        [history_steps[0].old, *(step.new for step in history_steps)]
        if history_steps
        else [median([value for _, value in numbers])]
    )
    texts = ["", *(signed_figure(step.change, steps.history.unit) for step in history_steps)]
    return list(map(Level, begins, ends, values, texts))


def bounds(history: History, point: HistoryPoint) -> Interval | None:
    """The interval, which is of the overhead, shifted to the figure; None for an exact count."""
    value, interval = history.of(point), point.interval
    if value is None or point.overhead is None or interval is None or interval[0] == interval[1]:
        return None
    moved = value - point.overhead
    return interval[0] + moved, interval[1] + moved


def history_picture(steps: Steps, name: str) -> Markup:
    """A history as SVG: runs, intervals, levels, steps, and failures at the bottom; ids begin with ``name``."""
    history, newest, held = steps.history, steps.history.newest, levels(steps)
    moments = [_when(point) for point in history.points]
    values = [history.of(point) for point in history.points]
    intervals = [bounds(history, point) for point in history.points]
    ends = _range([*values, *(end for interval in intervals for end in interval or ())])
    heights = _ticks(*ends)
    left = 8 + _LETTER * max(len(text) for _, text in heights)
    across = _Scale(moments[0].timestamp(), moments[-1].timestamp(), left, _WIDTH - _RIGHT)
    upwards = _Scale(*ends, _HEIGHT - _BOTTOM, _TOP)
    places = [across(moment.timestamp()) for moment in moments]
    known: list[tuple[float, float]] = []
    numbers = ((value, place) for value, place in zip(values, places, strict=True) if value is not None)
    for value, group in groupby(numbers, itemgetter(0)):
        # Of equal neighbours only the first and the last, to keep the file small; the level line covers the others.
        alike = [place for _, place in group]
        known += [(place, upwards(value)) for place in (alike[0], alike[-1])]
    failed = dict.fromkeys(place for place, value in zip(places, values, strict=True) if value is None)
    changes = [f"{level.change} on {level.first.astimezone(UTC):%Y-%m-%d}" for level in held[1:]][-3:]
    newest_steps = f"; {counted(len(held) - 1, 'step')}, the newest: {', '.join(changes)}" if changes else ""
    begun, ended = (f"{moments[at].astimezone(UTC):%Y-%m-%d}" for at in (0, -1))
    what = newest.metric if history.quantity == "value" else f"overhead, {newest.metric}"
    course = f"{counted(len(moments), 'run')} from {begun} to {ended}{newest_steps}"
    return part(
        "history.svg.j2",
        name=name,
        title=history.metric.cell,
        description=f"{history.metric.experiment}: {what}: {course}",
        unit=newest.unit,
        width=_WIDTH,
        height=_HEIGHT,
        left=left,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        across=[(across(when), text) for when, text in _dates(moments[0], moments[-1])],
        upwards=[(upwards(value), text) for value, text in heights],
        bands=list(_bands(places, intervals, upwards)),
        # A line of length 0 with round ends is a point, in a fifth of the bytes of a circle.
        runs="".join(f"M{x:g} {y:g}h0" for x, y in dict.fromkeys(known)),
        size=3 if len(known) > _MANY else 6,
        levels="".join(
            f"M{across(level.first.timestamp()):g} {upwards(level.value):g}H{across(level.last.timestamp()):g}"
            for level in held
        ),
        steps=_steps(held, across),
        failed="".join(f"M{x - 3:g} {_HEIGHT - _BOTTOM - 3}l6 6m0 -6l-6 6" for x in failed),
        colours={"runs": MEASURED[1], "levels": MEASURED[0], "steps": STEP},
    )


def _when(point: HistoryPoint) -> datetime:
    return datetime.fromisoformat(point.started)


def _range(figures: Sequence[float | None]) -> tuple[float, float]:
    known = [figure for figure in figures if figure is not None]
    low, high = (min(max(end, -_MOST), _MOST) for end in (min(known, default=0.0), max(known, default=1.0)))
    spread = high - low
    margin = _MARGIN * spread if spread > _LEAST else max(abs(low) / 100, 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> Sequence[tuple[float, str]]:
    """About six round figures in this range, with their texts."""
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= _TICKS)
    form = f".{max(0, -math.floor(math.log10(step)))}f" if step < _ROUND else "g"
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(place * step, f"{place * step:{form}}") for place in places]


def _dates(begun: datetime, ended: datetime) -> Iterator[tuple[float, str]]:
    """About six times from the first run to the last: midnights, or full hours of a short history; UTC."""
    first, last = begun.astimezone(UTC), ended.astimezone(UTC)
    is_short = last - first < timedelta(days=3)
    unit, form = (timedelta(hours=1), "%m-%d %H:%M") if is_short else (timedelta(days=1), "%Y-%m-%d")
    when = first.replace(hour=first.hour if is_short else 0, minute=0, second=0, microsecond=0) + unit
    if when > last:
        yield first.timestamp(), f"{first:%Y-%m-%d %H:%M}"
        return
    stride = unit * math.ceil((last - when) / unit / _TICKS or 1)
    while when <= last:
        yield when.timestamp(), f"{when:{form}}"
        when += stride


def _bands(places: Sequence[float], intervals: Sequence[Interval | None], upwards: _Scale) -> Iterator[str]:
    """The outlines of neighbouring intervals, with gaps at runs without one."""
    for is_gap, group in groupby(zip(places, intervals, strict=True), lambda pair: pair[1] is None):
        if not is_gap:
            ends = [(x, *map(upwards, interval)) for x, interval in group if interval is not None]
            outline = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
            yield "M" + "L".join(f"{x:g} {y:g}" for x, y in outline) + "Z"


def _steps(held: Sequence[Level], across: _Scale) -> Sequence[tuple[float, str]]:
    """The steps, newest first, with their changes; of overlapping labels only the newer one."""
    pairs: list[tuple[float, str]] = []
    free = float(_WIDTH)
    for level in reversed(held[1:]):
        place = across(level.first.timestamp())
        half = _LETTER * len(level.change) / 2
        fits = place + half <= free
        pairs.append((place, level.change if fits else ""))
        free = place - half - _LETTER if fits else free
    return pairs
