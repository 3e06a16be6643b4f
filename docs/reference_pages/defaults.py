# SPDX-License-Identifier: GPL-2.0-only
"""What is a key of an experiment file where a table has not got it? The models say it, or tables that are checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from orchestrator.benchmarks.registry import kinds
from orchestrator.experiment.fields import ValidationContext
from orchestrator.experiment.table import Table
from orchestrator.experiment.table_kind import TableKind

from .markdown import ROOT, listed

_WORKLOAD = str(ROOT / "images" / "workload" / "workload.c")
_NEEDED: Mapping[str, Mapping[str, object]] = {
    "syscall": {"call": "getppid"},
    "workload": {"file": _WORKLOAD},
    "command": {"command": ["/bin/true"]},
    "program": {"run": "true"},
}
"""What the smallest tables of some benchmarks need, for their defaults to be seen."""

_IN_PLACE_OF_ANOTHER = ("run",)
"""Keys that are needed where another one is missing."""

NO_DEFAULT = "None."


def static_default(field: FieldInfo) -> str:
    """The sentence about a field's default that the model itself has."""
    if field.is_required():
        return "None; it is required."
    value = field.get_default(call_default_factory=True)
    return NO_DEFAULT if value in (None, (), {}) else f"{_shown(value)}."


def _shown(value: object) -> str:
    """A value as YAML."""
    plain = list(value) if isinstance(value, tuple) else value
    text = yaml.safe_dump(plain, default_flow_style=True, width=1000).removesuffix("\n").removesuffix("\n...")
    return f"`{text}`"


def resolved_default(kind: TableKind, key: str) -> str:
    """The default that a benchmark or a clock decides, as tables without the key have it."""
    needing = [name for name in kind.benchmarks() if key in _NEEDED.get(name, {})]
    if key in _IN_PLACE_OF_ANOTHER:
        return NO_DEFAULT
    if needing:
        return f"None; it is required of {listed(needing)}."
    sentences = []
    for clock in ("instructions", "wall"):
        defaults: dict[str, list[str]] = {}
        for benchmark in kind.benchmarks():
            value = _value_without(kind, benchmark, clock, key)
            if value not in (None, ()):
                defaults.setdefault(_shown(value), []).append(benchmark)
        said = "; ".join(f"{value} for {listed(of)}" for value, of in defaults.items())
        sentences += [next(iter(defaults)) if len(defaults) == 1 else said] if defaults else []
    if not sentences:
        return NO_DEFAULT
    usual, *wall = dict.fromkeys(sentences)
    return f"{usual}; with `clock: wall`, {wall[0]}." if wall else f"{usual}."


def _value_without(kind: TableKind, benchmark: str, clock: str, key: str) -> object:
    """What the key is in a table that has not got it; None where there is no such table."""
    table_of_one: dict[str, Any] = {
        "clock": clock,
        "benchmark": {"name": benchmark, **_NEEDED.get(benchmark, {})},
        "kernels": ["lab-i386-up"],
        "machines": [{"cpu": "pentium4"}],
        "probes": ["none"],
    }
    if benchmark == "workload":
        table_of_one["points"] = ["vfs_read"]
    context = ValidationContext(benchmarks=kinds().benchmarks, rows=kinds().rows)
    try:
        checked: Table = kind.table.model_validate(table_of_one, context=context)
    except ValidationError:
        if clock == "instructions":
            raise
        return None
    value: object = getattr(checked.benchmark, key)
    return value
