# SPDX-License-Identifier: GPL-2.0-only
"""Tests as text: a table of calls, and what each of its cells must give. docs/testing.md describes the files.

Each file of ``cases`` has one subject. A case is measured in a guest that its module's tests share.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self

import pytest
import yaml
from pydantic import BaseModel, ConfigDict, Field, JsonValue, model_validator

from orchestrator.catalog.kernels import kernels
from orchestrator.paths import data_dir

_HERE = Path(__file__).parent
CASES = _HERE / "cases"
FOLDERS = {
    **{name: str(_HERE / name) for name in ("workloads", "programs")},
    "calls": str(data_dir("images") / "guest" / "calls"),
}
"""What ``${workloads}`` and its like stand for in a case."""

_WORD = re.compile(r"\$\{(\w+)\}")


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CaseGuest(Strict):
    """A guest on the instruction clock."""

    kernel: str
    cpu: str
    image: str | None = None
    words: Mapping[str, str] = Field(default={}, description="what ${NAME} stands for in a case on this guest")
    nightly: str | None = Field(default=None, description="why cases on this guest are not of every day")


class Texts(Strict):
    """Texts in a sentence, its beginning, the whole of it, or an expression that its beginning matches."""

    contains: tuple[str, ...] = ()
    begins: str = ""
    equals: str | None = None
    matches: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_text(cls, value: object) -> object:
        if isinstance(value, str):
            return {"contains": (value,)}
        return {"contains": tuple(value)} if isinstance(value, list) else value

    def lacking(self, text: str) -> Sequence[str]:
        """What ``text`` does not say."""
        lacking = [part for part in self.contains if part not in text]
        lacking += [] if text.startswith(self.begins) else [self.begins]
        lacking += [] if self.equals in (None, text) else [str(self.equals)]
        return lacking if self.matches is None or re.match(self.matches, text) else [*lacking, self.matches]


class ExpectedCell(Strict):
    """What a cell gives: a proved number with these fields of its record, or a reason for none."""

    ok: Mapping[str, JsonValue] | None = None
    failed: Texts | None = None
    unsupported: Texts | None = None

    @model_validator(mode="before")
    @classmethod
    def _status_alone(cls, value: object) -> object:
        return {"ok": {}} if value == "ok" else value

    @model_validator(mode="after")
    def _one_status(self) -> Self:
        if len(self.model_fields_set) != 1:
            raise ValueError("a cell is ok, failed or unsupported")
        return self

    @property
    def status(self) -> Literal["ok", "failed", "unsupported"]:
        return "ok" if self.ok is not None else "failed" if self.failed is not None else "unsupported"


class Case(Strict):
    """A table of calls in one guest; cells are named by PROBE/HANDLER[/POINT], with ``*`` for any text."""

    name: str
    guests: tuple[str, ...] = ()
    nightly: str | None = None
    compiled: Mapping[str, str] = Field(default={}, description="programs of ${workloads} that are compiled, by NAME")
    table: Mapping[str, JsonValue]
    cells: Mapping[str, ExpectedCell]
    cheapest_first: tuple[tuple[str, ...], ...] = ()
    equal: tuple[tuple[str, ...], ...] = ()


class CaseFile(Strict):
    """The cases of one subject, and the guests on which each is tried that names none."""

    about: str
    guests: Mapping[str, CaseGuest]
    table: Mapping[str, JsonValue] = Field(default={}, description="keys that a case's table may replace")
    cases: tuple[Case, ...]


class TriedCase(Strict):
    """A case on one guest, with its words in place."""

    file: str
    guest: CaseGuest
    case: Case

    def described(self, folders: Mapping[str, str]) -> Mapping[str, object]:
        """The table of the experiment."""
        benchmark = in_place(self.case.table, {**self.guest.words, **folders})
        assert isinstance(benchmark, Mapping)
        image = {} if self.guest.image is None else {"image": self.guest.image}
        return {"kernels": [self.guest.kernel], "machines": [{"cpu": self.guest.cpu}], **image, **benchmark}

    def expected(self, folders: Mapping[str, str]) -> Mapping[str, ExpectedCell]:
        """The cells, with this guest's words."""
        words = {**self.guest.words, **folders}
        return {
            _WORD.sub(lambda match: words[match[1]], cell): ExpectedCell.model_validate(
                in_place(expected.model_dump(exclude_unset=True), words)
            )
            for cell, expected in self.case.cells.items()
        }


def in_place(value: object, words: Mapping[str, str]) -> object:
    """A value in which ``${NAME}`` is replaced."""
    if isinstance(value, str):
        return _WORD.sub(lambda match: words[match[1]], value)
    if isinstance(value, Mapping):
        return {key: in_place(each, words) for key, each in value.items()}
    return [in_place(each, words) for each in value] if isinstance(value, list | tuple) else value


def tried_cases() -> Iterator[object]:
    """Each case on each of its guests, as a test's parameter."""
    for file in sorted(CASES.glob("*.yaml")):
        group = CaseFile.model_validate(yaml.safe_load(file.read_text()))
        for case in group.cases:
            whole = case.model_copy(update={"table": {**group.table, **case.table}})
            for name in case.guests or group.guests:
                guest = group.guests[name]
                tried = TriedCase(file=file.stem, guest=guest, case=whole)
                yield pytest.param(tried, marks=list(_marks(tried)), id=f"{file.stem}: {case.name} [{name}]")


def _marks(tried: TriedCase) -> Iterator[pytest.MarkDecorator]:
    guest = tried.guest
    image = {} if guest.image is None else {"image": guest.image}
    yield pytest.mark.guest(kernel=guest.kernel, cpu=guest.cpu, timing="instructions", **image)
    if kernels()[guest.kernel].source is not None:
        yield pytest.mark.kernels(guest.kernel)
    reason = tried.case.nightly or guest.nightly
    if reason is not None:
        yield pytest.mark.nightly(reason)


def selected(pattern: str, names: Sequence[str]) -> Sequence[str]:
    """The cells that a pattern names: baselines only where it begins with ``none``."""
    baselines = pattern.startswith("none/")
    return [name for name in names if name.startswith("none/") == baselines and fnmatchcase(name, pattern)]


def differences(expected: JsonValue, value: object, path: str = "") -> Iterator[str]:
    """Where a value is not as expected: mappings have at least the keys, and ``{above: N}`` and its like are bounds."""
    if isinstance(expected, dict) and expected and set(expected) <= set(_BOUNDS):
        for bound, limit in expected.items():
            if not _BOUNDS[bound](value, limit):
                yield f"{path}: {value!r} is not {bound} {limit!r}"
    elif isinstance(expected, dict) and isinstance(value, Mapping):
        for key, each in expected.items():
            yield from differences(each, value.get(key), f"{path}.{key}" if path else key)
    elif expected != value:
        yield f"{path}: {value!r} is not {expected!r}"


_BOUNDS: Mapping[str, Callable[[Any, Any], bool]] = {
    "above": lambda value, limit: value is not None and value > limit,
    "below": lambda value, limit: value is not None and value < limit,
    "contains": lambda value, text: text in value if isinstance(value, str) else any(text in part for part in value),
    "matches": lambda value, expression: re.match(expression, str(value)) is not None,
    "among": lambda value, values: value in values,
}
