# SPDX-License-Identifier: GPL-2.0-only
"""Pictures in pages: charts, histories, and drawn pictures that follow the page's theme."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET  # the pictures are this program's own
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from importlib.util import find_spec
from itertools import groupby

from markupsafe import Markup

from orchestrator.plain_text import counted
from orchestrator.report.chart import INK, LINE, MEASURED, PAPER, QUIET_INK, STEP, Chart, HistoryChart, HistoryPoint
from orchestrator.report.html.frame import part

# A drawn picture as a part of a page: its colours follow the page's theme, and its ids are the page's own.

_CLASSES = {INK: "ink", QUIET_INK: "quiet", LINE: "line", PAPER: "paper"}
_LOCAL = re.compile(r"url\(#([^)]+)\)")
_REFERENCE = re.compile(r'(?:url\(|href=")#([^)"]+)')
_FONT = re.compile(r"(?:(bold|\d+) )?([\d.]+px) (.+)")


def inline_picture(svg: str, name: str, title: str, description: str) -> Markup:
    """Return ``svg`` as an element of a page, which screen readers announce as an image with a title.

    ``name`` begins all its ids. Its style attributes become attributes of their own, since the page's content security
    policy forbids inline styles.
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
    # A screen reader reads the title and the description, not each label of an axis.
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


# A chart as a part of a page.

NOT_DRAWN = "Charts are drawn with matplotlib, which is not installed: pip install 'probe-lab[plots]'"


def can_draw() -> bool:
    """Whether matplotlib is there."""
    return find_spec("matplotlib") is not None


def chart_picture(chart: Chart, name: str) -> Markup:
    """Return the chart as an element whose ids begin with ``name``; matplotlib must be there."""
    from orchestrator.report.drawing import svg_text

    return inline_picture(svg_text(chart), name, chart.title, chart.subtitle)


# The chart of a history as a part of a page.
#
# It is drawn here and not with matplotlib, which takes 0.1 s and up to 180 kB for each: one more run changes the
# charts of all metrics of its experiment.

_WIDTH, _HEIGHT = 960, 320
_TOP, _BOTTOM, _RIGHT = 44, 30, 16
_LETTER = 7.0
"""Width of a digit at the size of the labels, in pixels."""
_MANY = 100  # points from which on they are drawn small
_TICKS = 6
_ROUND = 1e6  # between labels: from there on they have an exponent
_MARGIN = 0.1
_LEAST = 1e-9
"""Instructions or nanoseconds: a smaller spread is none."""
_MOST = 1e300
"""Of the axis upwards: the difference of its ends is a number."""


@dataclass(frozen=True)
class _Scale:
    """From the values of an axis to pixels; what is outside is at its end."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        inside = min(max(value, self.low), self.high)
        share = (inside - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)


def history_picture(chart: HistoryChart, name: str) -> Markup:
    """Return the course of a history as SVG: runs, intervals, levels, steps, and runs without a number at the bottom.

    ``name`` begins all its ids.
    """
    heights = _ticks(*_range(chart))
    left = 8 + _LETTER * max(len(text) for _, text in heights)
    first, last = chart.points[0].when, chart.points[-1].when
    across = _Scale(first.timestamp(), last.timestamp(), left, _WIDTH - _RIGHT)
    upwards = _Scale(*_range(chart), _HEIGHT - _BOTTOM, _TOP)
    known: list[tuple[float, float]] = []
    for value, group in groupby((one for one in chart.points if one.value is not None), lambda one: one.value):
        # Of neighbours that are equal, the first and the last: the level between has the others, and a file is small.
        alike = list(group)
        known += [(across(one.when.timestamp()), upwards(value or 0.0)) for one in (alike[0], alike[-1])]
    failed = dict.fromkeys(across(one.when.timestamp()) for one in chart.points if one.value is None)
    newest = [f"{one.change} on {one.first.astimezone(UTC):%Y-%m-%d}" for one in chart.levels[1:]][-3:]
    steps = f"; {counted(len(chart.levels) - 1, 'step')}, the newest: {', '.join(newest)}" if newest else ""
    begun, ended = (f"{when.astimezone(UTC):%Y-%m-%d}" for when in (first, last))
    return part(
        "history.svg.j2",
        name=name,
        chart=chart,
        description=f"{counted(len(chart.points), 'run')} from {begun} to {ended}{steps}",
        width=_WIDTH,
        height=_HEIGHT,
        left=left,
        right=_WIDTH - _RIGHT,
        top=_TOP,
        bottom=_HEIGHT - _BOTTOM,
        across=[(across(when), text) for when, text in _dates(chart)],
        upwards=[(upwards(value), text) for value, text in heights],
        bands=list(_bands(chart.points, across, upwards)),
        # A line of no length has round ends: a point, in a fifth of the bytes of a circle.
        runs="".join(f"M{x:g} {y:g}h0" for x, y in dict.fromkeys(known)),
        size=3 if len(known) > _MANY else 6,
        levels="".join(
            f"M{across(one.first.timestamp()):g} {upwards(one.value):g}H{across(one.last.timestamp()):g}"
            for one in chart.levels
        ),
        steps=_steps(chart, across),
        failed="".join(f"M{x - 3:g} {_HEIGHT - _BOTTOM - 3}l6 6m0 -6l-6 6" for x in failed),
        colours={"runs": MEASURED[1], "levels": MEASURED[0], "steps": STEP},
    )


def _range(chart: HistoryChart) -> tuple[float, float]:
    """The lowest and the highest figure, with a margin."""
    known = [(one.value, *(one.bounds or ())) for one in chart.points if one.value is not None]
    figures = [figure for group in known for figure in group]
    low, high = (min(max(end, -_MOST), _MOST) for end in (min(figures, default=0.0), max(figures, default=1.0)))
    spread = high - low
    margin = _MARGIN * spread if spread > _LEAST else max(abs(low) / 100, 1.0)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> Sequence[tuple[float, str]]:
    """Round figures in this range, some six, with their texts."""
    power = 10.0 ** math.floor(math.log10((high - low) / _TICKS))
    step = next(power * factor for factor in (1, 2, 5, 10) if (high - low) / (power * factor) <= _TICKS)
    form = f".{max(0, -math.floor(math.log10(step)))}f" if step < _ROUND else "g"
    places = range(math.ceil(low / step), math.floor(high / step) + 1)
    return [(place * step, f"{place * step:{form}}") for place in places]


def _dates(chart: HistoryChart) -> Iterator[tuple[float, str]]:
    """Some six moments from the first run to the last: midnights, or full hours of a short history; UTC."""
    first, last = (point.when.astimezone(UTC) for point in (chart.points[0], chart.points[-1]))
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


def _bands(points: Sequence[HistoryPoint], across: _Scale, upwards: _Scale) -> Iterator[str]:
    """The intervals of each row of neighbours that have one: nothing is drawn across a run that has none."""
    for has_bounds, group in groupby(points, lambda one: one.bounds is not None):
        if has_bounds:
            ends = [
                (across(one.when.timestamp()), *map(upwards, one.bounds)) for one in group if one.bounds is not None
            ]
            outline = [*((x, high) for x, _, high in ends), *((x, low) for x, low, _ in reversed(ends))]
            yield "M" + "L".join(f"{x:g} {y:g}" for x, y in outline) + "Z"


def _steps(chart: HistoryChart, across: _Scale) -> Sequence[tuple[float, str]]:
    """The steps, the newest first, with their changes. Of labels that would cover each other the newer one stays."""
    found: list[tuple[float, str]] = []
    free = float(_WIDTH)
    for level in reversed(chart.levels[1:]):
        place = across(level.first.timestamp())
        half = _LETTER * len(level.change) / 2
        fits = place + half <= free
        found.append((place, level.change if fits else ""))
        free = place - half - _LETTER if fits else free
    return found
