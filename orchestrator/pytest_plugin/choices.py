# SPDX-License-Identifier: GPL-2.0-only
"""Which guests does a mark with lists describe? A test for each. Imports nothing heavy."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from pathlib import PurePath
from typing import Any

import pytest

CHOICE = "_guest_choice"
"""The fixture that all fixtures of guests use, and that lists parametrise."""

NO_CHOICES = ("data", "allow_oops")
"""Arguments whose value is a list by itself."""


def merged(marks: Iterable[pytest.Mark]) -> dict[str, Any]:
    """The arguments of a test's marks, which come with the nearest first: that one wins."""
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
    """What an item's parameters choose of its mark's lists."""
    callspec = getattr(item, "callspec", None)
    chosen: Mapping[str, Any] = {} if callspec is None else callspec.params.get(CHOICE, {})
    return chosen


def choose(arguments: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments with one value for each list; a mark of the parameter set itself may have overridden a list."""
    return {**arguments, **{name: chosen[name] for name in _lists(arguments) if name in chosen}}


def _lists(arguments: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: value for name, value in arguments.items() if name not in NO_CHOICES}
    return {name: value for name, value in found.items() if isinstance(value, list | tuple) and value}


def _label(name: str, value: object) -> str:
    """A value in a test's id: its text, a path by its last part, a number with what it counts."""
    text = str(value)
    return f"{name}{text}" if isinstance(value, int) else PurePath(text).name or text
