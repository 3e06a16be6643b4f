# SPDX-License-Identifier: GPL-2.0-only
"""How ``--set KEY=VALUE`` changes an experiment file's data, and the origin of each value."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from orchestrator.errors import ConfigError
from orchestrator.experiment.file.source import MAX_BYTES, MAX_DEPTH, Data, KeyPath, parse

_STEP = re.compile(r"[A-Za-z0-9_-]+")
_INDEX = re.compile(r"[0-9]{1,9}")


class Origins:
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
        """Return the origin of ``path``, or of the nearest mapping or list that contains it."""
        return next((self._places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in self._places), "")

    def overridden(self, path: KeyPath) -> bool:
        """Whether ``path`` comes from an override."""
        return self.where(path) in self._overridden


def apply_overrides(data: Data, overrides: Sequence[str], origins: Origins) -> Data:
    """Apply each ``KEY=VALUE`` in turn and return the changed data; ``data`` and ``origins`` are changed in place.

    KEY is a dotted path, with numbers for list items (``machines.0.cpu``); VALUE is YAML. A mapping on the way
    that is missing is made. Raises ConfigError that begins with the ``--set`` text.
    """
    for text in overrides:
        data = _apply(data, text, origins)
    return data


def _apply(data: Data, text: str, origins: Origins) -> Data:
    place = "--set " + _shown(text)
    (*inner, last), value_text = _split(text, place)
    value = parse(value_text, lambda _: place).data
    if data is None:
        data = {}
    holder: Data = data
    path: KeyPath = ()
    for step in inner:
        path, inside = _step_into(holder, step, path, place)
        if inside is None and isinstance(holder, dict):
            inside = holder[step] = {}
            origins.override(path, place)
        holder = inside
    path = _replace(holder, last, value, path, place)
    origins.override(path, place)
    return data


def _split(text: str, place: str) -> tuple[list[str], str]:
    """The steps of an override's key, and its value's text."""
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


def _step_into(holder: Data, step: str, path: KeyPath, place: str) -> tuple[KeyPath, Data]:
    """The path that a step leads to, and its value (None: not there yet)."""
    if isinstance(holder, list):
        index = _index(holder, step, path, place)
        return (*path, index), holder[index]
    if isinstance(holder, dict):
        return (*path, step), holder.get(step)
    raise _no_holder(path, place)


def _replace(holder: Data, step: str, value: Data, path: KeyPath, place: str) -> KeyPath:
    """Put the value where the last step leads; return its path."""
    if isinstance(holder, list):
        index = _index(holder, step, path, place)
        holder[index] = value
        return (*path, index)
    if isinstance(holder, dict):
        holder[step] = value
        return (*path, step)
    raise _no_holder(path, place)


def _no_holder(path: KeyPath, place: str) -> ConfigError:
    return ConfigError(f"{_dotted(path)} is neither a mapping nor a list", where=place)


def _index(items: list[Data], step: str, path: KeyPath, place: str) -> int:
    if not _INDEX.fullmatch(step) or int(step) >= len(items):
        name, last = _dotted(path), len(items) - 1
        several = f"entries {name}.0 to {name}.{last}" if items else "no entries"
        entries = f"one entry, {name}.0" if last == 0 else several
        raise ConfigError(f"{name} is a list with {entries}; it has no '{step}'", where=place)
    return int(step)


def _dotted(path: KeyPath) -> str:
    return ".".join(str(step) for step in path) or "the file"


def _shown(text: str) -> str:
    short = text if len(text) <= 80 else text[:77] + "..."
    if not short.isprintable():
        return ascii(short)
    return short if "=" in short else shlex.quote(short)
