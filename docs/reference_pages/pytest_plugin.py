# SPDX-License-Identifier: GPL-2.0-only
"""The page of the pytest plugin: its marks, options, settings and fixtures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self, cast

import pytest

from orchestrator import pytest_plugin
from orchestrator.experiment.guest_spec import GuestSpec, guest_argument_summaries, guest_arguments
from orchestrator.library.tested_guest import KernelModules
from orchestrator.pytest_plugin import fixtures, result_reports
from orchestrator.pytest_plugin.guest_factory import GuestFactory
from orchestrator.pytest_plugin.instruction_budget import InstructionBudget
from orchestrator.pytest_plugin.ktap_tests import KernelTests
from orchestrator.pytest_plugin.probe_cost import ProbeCost, ProbeCosts

from .markdown import Undescribed, described, fenced, filled, first_sentence, inline, link, prose, table
from .markdown import page as whole_page
from .python_api import fields_table, method_section

FIXTURES: Mapping[str, Any] = {
    **{name: getattr(fixtures, name) for name in fixtures.__all__ if not name.startswith("_")},
    "ktap": result_reports.ktap,
}
_MADE: Mapping[str, tuple[type, Sequence[str]]] = {
    "guest_factory": (GuestFactory, ["__call__"]),
    "instruction_budget": (InstructionBudget, ["call", "function", "command", "check"]),
    "kmod": (KernelModules, ["__call__"]),
    "ktap": (KernelTests, ["kunit", "program", "ftracetest", "report"]),
    "probe_cost": (ProbeCosts, ["__call__"]),
}
"""What fixtures give: the class, and the methods that are for tests."""

_EXAMPLE = """\
import pytest

pytestmark = pytest.mark.guest(timing="instructions")  # all tests of this file


@pytest.mark.guest(kernel=["debian-686", "lab-i386-up"], smp=1)
def test_on_two_kernels(guest, kmod):
    assert kmod("my_module.c", {"verbose": 1}).parameter("verbose") == "1"


@pytest.mark.allow_oops(r"WARNING: .* my_init\\+")
def test_a_module_that_warns(guest):
    guest.load("my_warning.c")
"""


def page() -> str:
    """Marks, options, settings, fixtures."""
    return whole_page(
        "The pytest plugin",
        [
            filled(
                """`pytest --qemu` runs the tests that boot guests; without it they are skipped. [Guests in tests of
                your own](../pytest.md) explains it by examples. [What a guest can do](guest.md) has its verbs."""
            ),
            *_marks(),
            *_options(),
            *_fixtures(),
        ],
    )


class _Recorder:
    """Stands for pytest's parser and configuration, and keeps what the plugin adds to them."""

    def __init__(self) -> None:
        self.options: list[tuple[str, Mapping[str, Any]]] = []
        self.settings: list[tuple[str, str]] = []
        self.marks: dict[str, str] = {}

    def getgroup(self, name: str, description: str) -> Self:
        return self

    def addoption(self, name: str, **attributes: Any) -> None:
        self.options.append((name, attributes))

    def addini(self, name: str, help: str) -> None:  # noqa: A002 - pytest calls it so
        self.settings.append((name, help))

    def addinivalue_line(self, name: str, line: str) -> None:
        assert name == "markers"
        self.marks[re.split(r"[(:]", line)[0]] = line

    def getoption(self, name: str) -> None:
        """None is given."""


def _recorded() -> _Recorder:
    recorder = _Recorder()
    pytest_plugin.pytest_addoption(cast("pytest.Parser", recorder))
    pytest_plugin.pytest_configure(cast("pytest.Config", recorder))
    return recorder


def _marks() -> Iterator[str]:
    marks = _recorded().marks
    marks.pop("guest")
    yield "## Marks"
    yield "### pytest.mark.guest"
    yield filled(
        """The machine of a test's guest, on a test, its class or its module. A nearer mark's arguments override a
        farther one's. A list of values makes a test for each, with the value in its id; `data` and `allow_oops` are
        lists by themselves."""
    )
    yield fenced(_EXAMPLE, "python")
    summaries = guest_argument_summaries()
    undescribed = GuestSpec.model_fields.keys() - summaries.keys()
    if undescribed:
        raise Undescribed(f"GuestSpec has no description of {', '.join(sorted(undescribed))}")
    rows = [
        (f"`{name}`", f"`{field.default!r}`" if field.default != "" else "see there", inline(summaries[name]))
        for name, field in guest_arguments().items()
    ]
    yield table(("argument", "default", "what"), rows)
    for name, line in marks.items():
        call, _, text = line.partition(": ")
        yield f"### pytest.mark.{name}"
        yield filled(f"`{call}`: {inline(text)}" + ("" if text.endswith(".") else "."))


def _options() -> Iterator[str]:
    recorder = _recorded()
    yield "## Options"
    options = [
        (f"`{name} {attributes['metavar']}`" if "metavar" in attributes else f"`{name}`", _sentence(attributes["help"]))
        for name, attributes in recorder.options
    ]
    yield table(("option", "what"), options)
    yield "## Settings"
    yield "In pytest's configuration file; an option overrides them."
    yield table(("setting", "what"), [(f"`{name}`", _sentence(text)) for name, text in recorder.settings])


def _fixtures() -> Iterator[str]:
    yield "## Fixtures"
    names = sorted(FIXTURES)
    yield table(("fixture", "what"), [(link(name), inline(first_sentence(_doc(name)))) for name in names])
    for name in names:
        yield f"## {name}"
        yield prose(_doc(name))
        if name not in _MADE:
            continue
        made, methods = _MADE[name]
        paragraphs = described(made, made.__name__).partition("\n\n")[2]
        if paragraphs and name != "guest_factory":
            yield prose(paragraphs)
        for method in methods:
            called = name if method == "__call__" else f"{name}.{method}"
            if called != name:
                yield f"### {called}"
            yield from method_section(called, getattr(made, method))
    yield "## ProbeCost"
    yield prose(described(ProbeCost, "ProbeCost"))
    yield fields_table(ProbeCost)


def _doc(name: str) -> str:
    return described(FIXTURES[name], f"fixture {name}")


def _sentence(text: str) -> str:
    line = inline(text)
    return line[0].upper() + line[1:] + "."
