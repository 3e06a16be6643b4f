# SPDX-License-Identifier: GPL-2.0-only
"""The guests of marks with lists: a test for each combination of values. Imports nothing heavy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import pytest

CHOICE = "_guest_choice"
"""The fixture that all guest fixtures use, and that lists parametrise."""

NO_CHOICES = ("data", "allow_oops")
"""Arguments whose value is itself a list."""


def merged(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The arguments of a test's marks, given nearest first; the nearest wins."""
    arguments: dict[str, Any] = {}
    for mark in reversed(list(marks)):
        arguments.update(mark.kwargs)
    return arguments


def parametrize_guests(metafunc: pytest.Metafunc) -> None:
    """Make a test for each combination of the values in lists."""
    lists = _lists(merged(metafunc.definition.iter_markers("guest")))
    if lists:
        choices = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
        metafunc.parametrize(
            CHOICE, choices, indirect=True, ids=["-".join(map(_label, c, c.values())) for c in choices]
        )


def chosen_by(item: pytest.Item) -> Mapping[str, Any]:
    """The values that an item's parameters choose from its mark's lists."""
    callspec = getattr(item, "callspec", None)
    chosen: Mapping[str, Any] = {} if callspec is None else callspec.params.get(CHOICE, {})
    return chosen


def choose(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one value for each list; a mark on the parameter set itself may have replaced a list."""
    return {**arguments, **{name: chosen[name] for name in _lists(arguments) if name in chosen}}


def unchosen(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """The arguments whose lists pytest has made no tests of."""
    return [name for name in _lists(arguments) if name not in chosen]


def _lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    choosable = {name: value for name, value in arguments.items() if name not in NO_CHOICES}
    return {name: value for name, value in choosable.items() if isinstance(value, list | tuple) and value}


def _label(name: str, value: object) -> str:
    """A value in a test's id: its text, a path's last part, or a number with its unit."""
    text = str(value)
    return f"{name}{text}" if isinstance(value, int) else PurePath(text).name or text
