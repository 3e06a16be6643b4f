# SPDX-License-Identifier: GPL-2.0-only
"""The page of what a guest can do, for tests and for kinds of benchmark."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from orchestrator import errors
from orchestrator.errors import LabError
from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_reports import known_reports
from orchestrator.library.tested_guest import LoadedModule, TestedGuest
from orchestrator.probes.loading import RefusedError

from .markdown import described, fenced, filled, inline, prose, table
from .markdown import page as whole_page
from .python_api import fields_table, method_section, methods_table, property_rows

GROUPS: Mapping[str, Sequence[str]] = {
    "Commands": ("run", "succeed", "fail", "wait_until_succeeds", "interact"),
    "Files": ("put", "get", "make_folder"),
    "Modules": ("load", "unload"),
    "Console and kernel log": ("dmesg", "wait_for_line", "printed", "drain_console", "reports"),
    "Trouble": (
        "expect_oops",
        "expect_panic",
        "check_kernel",
        "has_reported",
        "check_console",
        "check_taint",
        "check_alive",
    ),
    "Life": ("reboot", "awake", "pause", "resume", "kill", "power_off"),
    "From outside": ("read_memory", "counted_interrupts"),
    "Tests of the kernel's own": ("ktap",),
}
OF_TESTS, OF_ALL = ("folder", "address"), ("pid", "command_line", "is_aborted")
PROPERTIES = (*OF_TESTS, *OF_ALL)

NOT_FOR_TESTS = frozenset(
    {
        *(
            "boot",
            "continue_from",
            "written_out",
            "leave_channel",
            "abort",
            "renew",
            "take_slots",
            "counts_file",
        ),  # who starts guests
        "stop_command",  # a terminal, whose commands another thread waits for
        *("keep_core", "opening_command", "stub"),  # who debugs
        *("start", "begin_test", "wait_for_debugger"),  # the plugin itself
    }
)
"""Public all the same: for other parts of the lab."""

_EXAMPLE = """\
def test_a_file_that_is_written(guest):
    guest.put(b"42\\n", "/tmp/answer")
    assert guest.succeed(["cat", "/tmp/answer"]).text == "42\\n"
    assert guest.run(["test", "-d", "/tmp/answer"]).status == 1
    with guest.expect_panic("sysrq triggered crash"):
        guest.succeed(["sh", "-c", "echo c >/proc/sysrq-trigger"])
    guest.reboot()
"""
_OF_TESTS = "Of guests in tests only."


def page() -> str:
    """All verbs of a guest."""
    names = [name for group in GROUPS.values() for name in group]
    return whole_page(
        "What a guest can do",
        [
            filled(
                """A test gets a guest from the [fixtures](pytest-plugin.md#fixtures) `guest`, `shared_guest` and
                `guest_factory`; a [kind of benchmark](../adding-a-kind.md) has one while it measures, without the
                verbs that are of tests only."""
            ),
            fenced(_EXAMPLE, "python"),
            prose(described(TestedGuest, "TestedGuest").partition("\n\n")[2]),
            filled(
                """Seconds of the host are those [in which a processor could be had](../faults.md#a-slow-host). A verb
                raises [an error](#errors) when the guest is gone, hangs, or refuses it."""
            ),
            methods_table(("verb", "what"), {name: _verb(name) for name in names}),
            *(part for title, group in GROUPS.items() for part in _group(title, group)),
            *_known_reports(),
            "## Attributes",
            table(
                ("attribute", "type", "what"), [*property_rows(TestedGuest, OF_TESTS), *property_rows(Guest, OF_ALL)]
            ),
            *_results(),
            *_errors(),
        ],
    )


def public_names() -> set[str]:
    """The methods and properties of a test's guest without an underscore."""
    members = (*inspect.getmembers_static(TestedGuest), *inspect.getmembers_static(Guest))
    return {name for name, _ in members if not name.startswith("_")}


def _verb(name: str) -> Callable[..., Any]:
    verb: Callable[..., Any] = getattr(TestedGuest if name in vars(TestedGuest) else Guest, name)
    return verb


def _group(title: str, names: Sequence[str]) -> Iterator[str]:
    yield f"## {title}"
    for name in names:
        yield f"### {name}"
        yield from method_section(f"guest.{name}", _verb(name))
        if name in vars(TestedGuest) and not hasattr(Guest, name):
            yield _OF_TESTS


def _known_reports() -> Iterator[str]:
    yield "## What counts as a report"
    yield filled(
        """What the kernel prints on its console in one of these forms, of Linux 5.10 to 7.3. A call trace without any
        of them is a warning, with the message above it; so is what stands between `[ cut here ]` and `[ end trace`.
        What someone has asked for is none: SysRq, fault injection, a control group that runs out of its own memory."""
    )
    rows = ((known.kind, inline(known.what), f"`{known.example}`") for known in known_reports())
    yield table(("kind", "what", "a first line"), rows)


def _results() -> Iterator[str]:
    yield "## CommandResult"
    yield prose(described(CommandResult, "CommandResult"))
    yield fields_table(CommandResult, ["text"])
    yield "## LoadedModule"
    yield prose(described(LoadedModule, "LoadedModule"))
    yield fields_table(LoadedModule)
    for name in ("parameter", "set_parameter"):
        yield f"### {name}"
        yield from method_section(f"module.{name}", getattr(LoadedModule, name))


def _errors() -> Iterator[str]:
    yield "## Errors"
    yield filled(
        """All are in `orchestrator.errors`, but for `RefusedError` in `orchestrator.probes.loading`. `str()` of one is
        the whole message; `what` is its sentence, `where` its place, `hint` what to do, `detail` what it quotes."""
    )
    yield table(("error", "is a", "what"), [_error(kind) for kind in (*_tree(LabError), RefusedError)])


def _tree(error: type[LabError]) -> Iterator[type[LabError]]:
    yield error
    for below in error.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


def _error(error: type[LabError]) -> tuple[str, str, str]:
    base = error.__bases__[0].__name__
    text = described(error, error.__name__).partition("\n\n")[0]
    return f"`{error.__name__}`", f"`{base}`", inline(text)
