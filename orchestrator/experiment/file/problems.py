# SPDX-License-Identifier: GPL-2.0-only
"""The report of all problems of an experiment at once: place, key, what was found, what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pydantic import ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from orchestrator.catalog.spelling import choices_sentence
from orchestrator.errors import ConfigError
from orchestrator.experiment.file.overrides import Origins
from orchestrator.experiment.file.source import KeyPath

_SHOWN = 20
_MISSING = "missing; this key is required"
_MISSPELT = re.compile(r"unknown key; .*did you mean '([^']+)'\?", re.DOTALL)
_ALLOWED = re.compile(r"allowed: [^;]{80,}")
"""A list that is not to be repeated."""

_WORDS = {
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
"""What is expected where pydantic finds such an error."""


@dataclass(frozen=True)
class Problem:
    """One problem: a sentence about the key at ``path``, which may apply equally to the key at ``other``."""

    path: KeyPath
    sentence: str
    other: KeyPath | None = None


def conflict(problems: Sequence[Problem]) -> PydanticCustomError:
    """Return the error a validator raises for conflicts between values; paths are relative to its own."""
    return PydanticCustomError("conflict", "values that do not go together", {"problems": tuple(problems)})


def mismatch(value: object, expected: str) -> PydanticCustomError:
    """Return the error a validator raises for one value: what was found, and what was expected."""
    return wrong(f"found {shown(value)}; {expected}")


def wrong(sentence: str) -> PydanticCustomError:
    """Return the error a validator raises when it has a whole sentence of its own."""
    return PydanticCustomError("wrong", "{sentence}", {"sentence": sentence})


def refused(error: ConfigError) -> PydanticCustomError:
    """Return the error a validator raises for a value that other code has refused: its sentence, with its hint."""
    what = f"{error.where}: {error.what}" if error.where else error.what
    return wrong(f"{what}; {error.hint}" if error.hint else what)


def shown(value: object) -> str:
    """Return a value as an error quotes it: short, and safe to print on a terminal."""
    if value is None:
        return "nothing"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, bool):
        return "true" if value else "false"
    quoted = repr(value)
    return quoted if len(quoted) <= 80 else quoted[:77] + "..."


def problems_of(error: ValidationError, unknown: Callable[[KeyPath], str]) -> list[Problem]:
    """Return a pydantic error as problems. ``unknown`` is what to say of a key that the model has not, by its path."""
    return [problem for details in error.errors(include_url=False) for problem in _problems(details, unknown)]


def _problems(details: ErrorDetails, unknown: Callable[[KeyPath], str]) -> list[Problem]:
    path, kind = details["loc"], details["type"]
    # Pydantic's mark for a wrong key of a mapping, not a wrong value; a key that is not allowed may be called so.
    if path[-1:] == ("[key]",) and kind != "extra_forbidden":
        path = path[:-1]
    if kind == "conflict":
        return [_below(path, problem) for problem in details["ctx"]["problems"]]
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
    """What a value should have been, in our words for pydantic's."""
    found, kind, context = details["input"], details["type"], details.get("ctx", {})
    if kind == "literal_error":
        return choices_sentence(str(found), re.findall(r"'([^']+)'", context["expected"]))
    if kind == "list_type" and isinstance(found, str):
        return f"expected a list, such as [{found}]"
    if kind == "string_type" and isinstance(found, int):
        return "expected text; put a number in quotes"
    return _WORDS[kind].format(**context) if kind in _WORDS else str(details["msg"])


def _below(path: KeyPath, problem: Problem) -> Problem:
    other = None if problem.other is None else (*path, *problem.other)
    return Problem((*path, *problem.path), problem.sentence, other)


def config_error(problems: Sequence[Problem], origins: Origins, name: str) -> ConfigError:
    """Return the one error that lists all ``problems`` with the origin of each; ``name`` is the file's."""
    lines = _each_list_once(_located(problem, origins) for problem in _each_mistake_once(problems))
    if len(lines) == 1:
        return ConfigError(lines[0][1], where=lines[0][0])
    detail = [f"{place}: {sentence}" for place, sentence in lines[:_SHOWN]]
    if len(lines) > _SHOWN:
        detail.append(f"and {len(lines) - _SHOWN} more")
    return ConfigError(f"{len(lines)} problems", where=name, detail=detail)


def _each_mistake_once(problems: Sequence[Problem]) -> Sequence[Problem]:
    """The problems without keys that are missing because they are misspelt."""
    meant = {(*one.path[:-1], found[1]) for one in problems if (found := _MISSPELT.match(one.sentence)) is not None}
    return [one for one in problems if one.sentence != _MISSING or one.path not in meant]


def _each_list_once(lines: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Places and sentences, with what is allowed instead of an unknown key or name only where it comes first."""
    said: set[str] = set()
    short = []
    for place, sentence in lines:
        found = _ALLOWED.search(sentence)
        if found is not None and found[0] in said:
            sentence = sentence.replace(found[0], "allowed: as above", 1)
        elif found is not None:
            said.add(found[0])
        short.append((place, sentence))
    return short


def _located(problem: Problem, origins: Origins) -> tuple[str, str]:
    path = problem.path
    if problem.other is not None and origins.overridden(problem.other) and not origins.overridden(path):
        path = problem.other  # of two values in conflict, the one given on the command line
    return origins.where(path), f"{_key(path)}: {problem.sentence}"


def _key(path: KeyPath) -> str:
    dotted = ".".join(str(step) for step in path) or "the file"
    if not dotted.isprintable():
        dotted = ascii(dotted)
    return dotted if len(dotted) <= 120 else dotted[:117] + "..."
