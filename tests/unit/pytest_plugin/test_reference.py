# SPDX-License-Identifier: GPL-2.0-only
"""Are the tables of docs/pytest.md what the docstrings say?"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.pytest_plugin import fixtures
from orchestrator.pytest_plugin.guest_factory import GuestFactory
from orchestrator.pytest_plugin.instruction_budget import InstructionBudget
from orchestrator.pytest_plugin.kernel_modules import KernelModules
from orchestrator.pytest_plugin.loaded_module import LoadedModule
from orchestrator.pytest_plugin.probe_cost import ProbeCost, ProbeCosts
from orchestrator.pytest_plugin.tested_guest import TestedGuest

PAGE = Path(__file__).parents[3] / "docs" / "pytest.md"

VERBS = (
    *("run", "succeed", "fail", "wait_until_succeeds", "wait_for_line", "put", "get", "load", "unload", "dmesg"),
    *("expect_oops", "expect_panic", "check_kernel", "printed", "reboot", "pause", "resume", "read_memory", "interact"),
)


def first_sentence(thing: object) -> str:
    """The first sentence of a docstring, which may have two lines."""
    text = " ".join((inspect.getdoc(thing) or "").split())
    return re.split(r"(?<=\.) ", text)[0].replace("``", "`")


def arguments(function: object) -> str:
    """The names of what a caller passes; those with a default in brackets."""
    assert callable(function)
    found = [one for one in inspect.signature(function).parameters.values() if one.name not in ("self", "time_limit")]
    named = [f"**{one.name}" for one in found if one.kind is one.VAR_KEYWORD]
    needed = [one.name for one in found if one.default is one.empty and one.kind is not one.VAR_KEYWORD]
    optional = [f"[{one.name}]" for one in found if one.default is not one.empty]
    return ", ".join([*needed, *optional, *named])


def fixture_rows() -> Iterator[str]:
    """The fixtures that are a tester's."""
    for name in fixtures.__all__:
        if not name.startswith("_"):
            yield f"| `{name}` | {first_sentence(getattr(fixtures, name))} |"


def verb_rows() -> Iterator[str]:
    """The methods of a test's guest."""
    for name in VERBS:
        verb = getattr(TestedGuest, name)
        yield f"| `{name}({arguments(verb)})` | {first_sentence(verb)} |"


def call_rows() -> Iterator[str]:
    """What is made by the other fixtures."""
    callables = {"kmod": KernelModules, "probe_cost": ProbeCosts, "guest_factory": GuestFactory}
    for name, made in callables.items():
        called = made.__call__
        yield f"| `{name}({arguments(called)})` | {first_sentence(called)} |"
    for name in ("call", "function", "command", "check"):
        method = getattr(InstructionBudget, name)
        yield f"| `instruction_budget.{name}({arguments(method)})` | {first_sentence(method)} |"
    yield f"| what `kmod` gives | {first_sentence(LoadedModule)} |"
    yield f"| what `probe_cost` gives | {first_sentence(ProbeCost)} |"


@pytest.mark.parametrize(
    ("title", "rows"), [("Fixtures", fixture_rows), ("The guest", verb_rows), ("Numbers, modules, networks", call_rows)]
)
def test_a_table_is_made_of_docstrings(title: str, rows: object) -> None:
    assert callable(rows)
    section = PAGE.read_text().split(f"\n## {title}\n")[1].split("\n## ")[0]
    table = [line for line in section.splitlines() if line.startswith("| ") and " --- " not in line][1:]
    wanted = list(rows())
    assert table == wanted, "the table has to be:\n" + "\n".join(wanted)
