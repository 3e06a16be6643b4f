# SPDX-License-Identifier: GPL-2.0-only
"""The failures that a YAML file expects of somebody else's tests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import ConfigError
from orchestrator.experiment.file.source import read_source


def read_expected(path: Path) -> Mapping[str, str]:
    """The reasons by the tests' names. Raises ConfigError, with file and line, for anything but such a mapping."""
    source = read_source(path)
    if source.data is None:
        return {}
    if not isinstance(source.data, dict):
        raise ConfigError("expected tests' names with the reasons why they fail", where=f"{path}:{source.lines[()]}")
    expected = {}
    for name, reason in source.data.items():
        if not isinstance(reason, str) or not reason.strip():
            where = f"{path}:{source.lines[name,]}"
            raise ConfigError(f"found no reason why {name!r} fails; expected one, as text", where=where)
        expected[name] = reason.strip()
    return expected
