# SPDX-License-Identifier: GPL-2.0-only
"""All problems of an experiment in one error, and the overrides of ``--set``."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from orchestrator import plain_text
from orchestrator.catalog.data import choices_sentence, nearest
from orchestrator.errors import ConfigError
from orchestrator.experiment.source import MAX_BYTES, MAX_DEPTH, Data, KeyPath, parse
from orchestrator.plain_text import cut

_STEP = re.compile(r"[A-Za-z0-9_-]+")
_INDEX = re.compile(r"[0-9]{1,9}")


class DataOrigins:
    """The origin (``file:line`` or the ``--set`` text) of every part of the data."""

    def __init__(self, places: Mapping[KeyPath, str]) -> None:
        self._places = dict(places)
        self._overridden: set[str] = set()

    def override(self, path: KeyPath, place: str) -> None:
        """Make ``place`` (a ``--set`` text) the origin of ``path`` and of all below it."""
        self._overridden.add(place)
        self._places = {key: value for key, value in self._places.items() if key[: len(path)] != path}
        self._places[path] = place

    def where(self, path: KeyPath) -> str:
        """The origin of ``path``, or of the nearest mapping or list that contains it."""
        return next((self._places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self._places), "")

    def overridden(self, path: KeyPath) -> bool:
        return self.where(path) in self._overridden


def apply_overrides(data: Data, overrides: Sequence[str], origins: DataOrigins) -> Data:
    """Apply each ``KEY=VALUE`` in turn, in place, and return the data.

    KEY is a dotted path, with numbers for list items (``machines.0.cpu``); VALUE is YAML. Missing mappings are added.
    Raises ConfigError whose place is the ``--set`` text.
    """
    for text in overrides:
        data = _apply(data, text, origins)
    return data


def _apply(data: Data, text: str, origins: DataOrigins) -> Data:
    place = "--set " + _shown(text)
    (*inner, last), value_text = _split(text, place)
    value = parse(value_text, lambda _: place).data
    data = {} if data is None else data
    holder: Any = data
    path: KeyPath = ()
    for step in inner:
        key = _key(holder, step, path, place)
        path = (*path, key)
        if isinstance(holder, dict) and holder.get(key) is None:
            holder[key] = {}
            origins.override(path, place)
        holder = holder[key]
    key = _key(holder, last, path, place)
    holder[key] = value
    origins.override((*path, key), place)
    return data


def _split(text: str, place: str) -> tuple[list[str], str]:
    key, equals, value = text.partition("=")
    steps = key.strip().split(".")
    if not equals or not all(_STEP.fullmatch(step) for step in steps):
        hint = "for example --set benchmark.calls=1000, without a space around the ="
        raise ConfigError("expected KEY=VALUE", where=place, hint=hint)
    if len(steps) > MAX_DEPTH:
        raise ConfigError(f"nested more than {MAX_DEPTH} deep", where=place)
    if len(value) > MAX_BYTES:
        raise ConfigError(f"larger than {MAX_BYTES // 1024} KiB", where=place)
    return steps, value


def _key(holder: Data, step: str, path: KeyPath, place: str) -> str | int:
    """The key or index of a step in what ``path`` names."""
    if isinstance(holder, dict):
        return step
    name = _dotted(path)
    if not isinstance(holder, list):
        raise ConfigError(f"{name} is neither a mapping nor a list", where=place)
    if not _INDEX.fullmatch(step) or int(step) >= len(holder):
        last = len(holder) - 1
        several = f"entries {name}.0 to {name}.{last}" if holder else "no entries"
        entries = f"one entry, {name}.0" if last == 0 else several
        raise ConfigError(f"{name} is a list with {entries}; it has no '{step}'", where=place)
    return int(step)


def _dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path) or "the file"


def _shown(text: str) -> str:
    short = cut(text, 80, "...")
    if not short.isprintable():
        return ascii(short)
    return short if "=" in short else shlex.quote(short)


_SHOWN = 20
_MISSING = "missing; this key is required"
_MISSPELT = re.compile(r"unknown key; .*did you mean '([^']+)'\?", re.DOTALL)
_ALLOWED = re.compile(r"allowed: [^;]{80,}")
"""A list of choices long enough to be printed only once."""

_WORDS = {
    "bool_type": "expected true or false",
    "dict_type": "expected a mapping",
    "list_type": "expected a list",
    "string_type": "expected text",
    "string_too_short": "expected some text",
    "string_too_long": "expected at most {max_length} characters",
    "too_short": "expected at least one entry",
    "less_than_equal": "expected at most {le:g}",
    "greater_than_equal": "expected at least {ge:g}",
    "greater_than": "expected more than {gt:g}",
}
"""What was expected, by pydantic's error type."""


@dataclass(frozen=True)
class Problem:
    """A sentence about the key at ``path``; ``conflicting`` is the key that it conflicts with, if any."""

    path: KeyPath
    sentence: str
    conflicting: KeyPath | None = None


def conflict(problems: Sequence[Problem]) -> PydanticCustomError:
    """The error that a validator raises for conflicts between values; paths are relative to the validated value."""
    return PydanticCustomError("conflict", "values that do not go together", {"problems": tuple(problems)})


def mismatch(value: object, expected: str, names: Iterable[str] = ()) -> PydanticCustomError:
    """The error that a validator raises for a value: what was found, what was expected, the nearest of ``names``."""
    guess = nearest(value, names) if isinstance(value, str) else None
    question = f"; did you mean '{guess}'?" if guess else ""
    return wrong(f"found {shown(value)}; {expected}{question}")


def wrong(sentence: str) -> PydanticCustomError:
    """The error that a validator raises with a sentence of its own."""
    return PydanticCustomError("wrong", "{sentence}", {"sentence": sentence})


def refused(error: ConfigError) -> PydanticCustomError:
    """The error that a validator raises for a ConfigError of the code that it calls."""
    what = f"{error.where}: {error.what}" if error.where else error.what
    return wrong(f"{what}; {error.hint}" if error.hint else what)


def shown(value: object) -> str:
    """A value as errors quote it: short, and safe to print on a terminal."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return "true" if value else "false"
    return cut(repr(value), 80, "...")


def problems_of(error: ValidationError, unknown: Callable[[KeyPath], str]) -> list[Problem]:
    """Turn a pydantic error into problems; ``unknown`` gives the sentence for the path of an unknown key."""
    return [problem for details in error.errors(include_url=False) for problem in _problems(details, unknown)]


def _problems(details: ErrorDetails, unknown: Callable[[KeyPath], str]) -> list[Problem]:
    path, kind = details["loc"], details["type"]
    # Pydantic appends "[key]" for a wrong key of a mapping; an unknown key may have this name.
    if path[-1:] == ("[key]",) and kind != "extra_forbidden":
        path = path[:-1]
    if kind == "conflict":
        return [
            Problem(
                (*path, *detail.path),
                detail.sentence,
                None if detail.conflicting is None else (*path, *detail.conflicting),
            )
            for detail in details["ctx"]["problems"]
        ]
    if kind == "wrong":
        return [Problem(path, details["msg"])]
    if kind == "missing":
        return [Problem(path, _MISSING)]
    if kind == "extra_forbidden":
        return [Problem(path, unknown(path))]
    if kind == "model_type":
        _, _, keys = unknown((*path, "")).partition("allowed: ")
        expected = f"expected a mapping; keys: {keys}" if keys else "expected a mapping"
        return [Problem(path, f"found {shown(details['input'])}; {expected}")]
    return [Problem(path, f"found {shown(details['input'])}; {_expected(details)}")]


def _expected(details: ErrorDetails) -> str:
    value, kind, context = details["input"], details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return choices_sentence(str(value), re.findall(r"'([^']+)'", context["expected"]))
    if kind == "list_type" and isinstance(value, str):
        return f"expected a list, such as [{value}]"
    if kind == "string_type" and isinstance(value, int):
        return "expected text; put a number in quotes"
    return _WORDS[kind].format(**context) if kind in _WORDS else str(details["msg"])


def config_error(problems: Sequence[Problem], origins: DataOrigins, name: str) -> ConfigError:
    """One error that lists all ``problems`` with their origins; ``name`` is the file's."""
    # A missing key and its misspelling are one mistake.
    meant = {
        (*problem.path[:-1], match[1])
        for problem in problems
        if (match := _MISSPELT.match(problem.sentence)) is not None
    }
    each = [problem for problem in problems if problem.sentence != _MISSING or problem.path not in meant]
    lines = _each_list_once(_located(problem, origins) for problem in each)
    if len(lines) == 1:
        return ConfigError(lines[0][1], where=lines[0][0])
    detail = plain_text.shown([f"{place}: {sentence}" for place, sentence in lines], _SHOWN, "and {} more")
    return ConfigError(f"{len(lines)} problems", where=name, detail=detail)


@dataclass(frozen=True)
class TableOrigin:
    """A table's file, the origins of the file's values, and the paths of the table's parts in the file."""

    file: str
    origins: DataOrigins
    places: Mapping[KeyPath, KeyPath]

    def placed(self, problem: Problem) -> Problem:
        conflicting = None if problem.conflicting is None else self._place(problem.conflicting)
        return Problem(self._place(problem.path), problem.sentence, conflicting)

    def _place(self, path: KeyPath) -> KeyPath:
        end = next((end for end in range(len(path), -1, -1) if path[:end] in self.places), 0)
        return (*self.places.get(path[:end], ()), *path[end:])


def error_of_tables(problems: Sequence[tuple[TableOrigin | None, Problem]]) -> ConfigError:
    """One error that lists the problems of an experiment's tables, each once, with its place if known."""
    origin = next((origin for origin, _ in problems if origin is not None), None)
    placed = [problem if table_origin is None else table_origin.placed(problem) for table_origin, problem in problems]
    file, origins = (origin.file, origin.origins) if origin is not None else ("", DataOrigins({}))
    return config_error(list(dict.fromkeys(placed)), origins, file)


def _each_list_once(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Places and sentences, with each long list of choices only in the first sentence that has it."""
    said: set[str] = set()
    short = []
    for place, sentence in lines:
        match = _ALLOWED.search(sentence)
        if match is not None and match[0] in said:
            sentence = sentence.replace(match[0], "allowed: as above", 1)
        elif match is not None:
            said.add(match[0])
        short.append((place, sentence))
    return short


def _located(problem: Problem, origins: DataOrigins) -> tuple[str, str]:
    path = problem.path
    if problem.conflicting is not None and origins.overridden(problem.conflicting) and not origins.overridden(path):
        path = problem.conflicting  # name the one of the two that the command line has set
    dotted = _dotted(path)
    key = cut(dotted if dotted.isprintable() else ascii(dotted), 120, "...")
    return origins.where(path), f"{key}: {problem.sentence}"
