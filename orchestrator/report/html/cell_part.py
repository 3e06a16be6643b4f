# SPDX-License-Identifier: GPL-2.0-only
"""What a page says of one cell: figures, samples, evidence, profile, and the command that repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from markupsafe import Markup

from orchestrator.program import command
from orchestrator.report.figures import NOTHING, figure, published_figure, unit_name
from orchestrator.report.html.frame import Link
from orchestrator.report.sheet import Sheet
from orchestrator.results.contract import CellRecord, TextEvidence

_MOST_SAMPLES = 100
_MOST_ITEMS = 20
_EXPERIMENT = "experiment.yaml"


@dataclass(frozen=True)
class Flames:
    """A flame graph: a ``picture`` in the page, or a ``link`` to its file."""

    picture: Markup | None = None
    link: str | None = None


@dataclass(frozen=True)
class CellPart:
    """A cell's record, with the texts and links that the page adds."""

    record: CellRecord
    anchor: str
    repeat: str | None
    links: Sequence[Link] = ()
    profile: Sheet | None = None
    flames: Flames | None = None

    @property
    def value(self) -> str:
        """The value as tables print it."""
        return figure(self.record.value, self.record.unit)

    @property
    def overhead(self) -> str:
        """The overhead as tables print it."""
        return figure(self.record.overhead, self.record.unit)

    @property
    def interval(self) -> str:
        """Both ends of the overhead's interval; one where they are equal."""
        if self.record.interval is None:
            return NOTHING
        low, high = (figure(end, self.record.unit) for end in self.record.interval)
        return low if low == high else f"{low} to {high}"

    @property
    def published(self) -> str:
        """The overhead that was published."""
        reference = self.record.reference
        return NOTHING if reference is None else f"{published_figure(reference.overhead)} {unit_name(reference.unit)}"

    @property
    def samples(self) -> str:
        """The samples in their order; neighbours that are equal as ``4 x 1048``."""
        shown = self.record.samples[:_MOST_SAMPLES]
        runs = [(value, len(list(group))) for value, group in groupby(figure(one, self.record.unit) for one in shown)]
        texts = [value if times == 1 else f"{times} x {value}" for value, times in runs]
        rest = len(self.record.samples) - len(shown)
        return ", ".join([*texts, *([f"{rest} more"] if rest else [])])

    @property
    def facts(self) -> Mapping[str, Mapping[str, str]]:
        """Everything else of the record that proves or describes the number, by what it belongs to."""
        record = self.record
        groups = {
            "Parameters": record.parameters,
            "Evidence": _fields(record.evidence),
            "Evidence of work": _fields(record.work),
            "Kernel text": _kernel_text(record.text),
            "Profile": _fields(record.profile),
            "Overhead by purpose": record.purposes,
        }
        found = {name: {key: _text(value) for key, value in group.items()} for name, group in groups.items() if group}
        shared = {"CPU": record.cpu, "CPUs": str(record.smp), "benchmark": record.benchmark, "metric": record.metric}
        if record.worker is not None:
            shared["measured by"] = record.worker
        return {"Cell": shared, **found}


def repeat_command(directory: Path, record: CellRecord) -> str | None:
    """The command that measures the cell, and what it is compared with, again; None without its experiment."""
    if not (directory / _EXPERIMENT).is_file():
        return None
    # A comma would begin another condition of the filter.
    only = f"id={record.id.replace(',', '?')}"
    return command("run", str((directory / _EXPERIMENT).absolute()), "--only", only)


def _fields(model: Any) -> Mapping[str, Any]:
    return {} if model is None else {key: one for key, one in model.model_dump().items() if one not in (None, "", ())}


def _kernel_text(text: TextEvidence | None) -> Mapping[str, Any]:
    """The evidence, with the places that were switched by their static keys; results.json has their bytes."""
    if text is None or not text.switched:
        return _fields(text)
    places: dict[str, list[str]] = {}
    for one in text.switched:
        places.setdefault(one.key, []).append(one.place)
    switched = "; ".join(f"by key {key}: {_text(found)}" for key, found in places.items())
    return {**_fields(text), "switched": switched}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(one)}" for key, one in list(value.items())[:_MOST_ITEMS])
    if isinstance(value, list | tuple):
        rest = [f"{len(value) - _MOST_ITEMS} more"] if len(value) > _MOST_ITEMS else []
        return ", ".join([*(_text(one) for one in value[:_MOST_ITEMS]), *rest])
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
