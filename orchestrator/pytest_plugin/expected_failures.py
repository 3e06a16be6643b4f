# SPDX-License-Identifier: GPL-2.0-only
"""The failures that are expected of somebody else's tests, as a test or a YAML file lists them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeGuard

from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.file.source import read_source

_QUOTED = 60


def check_expected(expected: object) -> Mapping[str, str]:
    """The reasons by the tests' names, as a test gives them. Raises UsageError for anything but such a mapping."""
    if not isinstance(expected, Mapping):
        hint = "expected={'a test': 'why it fails'}, or the path of a YAML file with such lines"
        raise UsageError(f"expected= takes reasons by the tests' names; found {_quoted(expected)}", hint=hint)
    for name, reason in expected.items():
        if not isinstance(name, str) or not _is_reason(reason):
            raise UsageError(f"expected= has no reason why {name!r} fails; found {_quoted(reason)}")
    return expected


def read_expected(path: Path) -> Mapping[str, str]:
    """The reasons by the tests' names. Raises ConfigError, with file and line, for anything but such a mapping."""
    source = read_source(path)
    if source.data is None:
        return {}
    if not isinstance(source.data, dict):
        raise ConfigError("expected tests' names with the reasons why they fail", where=f"{path}:{source.lines[()]}")
    expected = {}
    for name, reason in source.data.items():
        if not _is_reason(reason):
            where = f"{path}:{source.lines[name,]}"
            raise ConfigError(f"found no reason why {name!r} fails; expected one, as text", where=where)
        expected[name] = reason.strip()
    return expected


def _is_reason(reason: object) -> TypeGuard[str]:
    return isinstance(reason, str) and bool(reason.strip())


def _quoted(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]} ..."
