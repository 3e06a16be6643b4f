# SPDX-License-Identifier: GPL-2.0-only
"""What the marks of a test say of its guest, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from orchestrator.errors import UsageError
from orchestrator.experiment.guest_spec import GuestSpec, guest_argument_summaries, guest_arguments, guest_spec
from orchestrator.guest.kernel_reports import report_patterns
from orchestrator.pytest_plugin.mark_choices import NO_CHOICES, choose, merged, unchosen


def read_marks(settings: Mapping[str, Any], marks: Sequence[pytest.Mark], chosen: Mapping[str, Any]) -> GuestSpec:
    """The guest of a test's ``guest`` marks, nearest first, which override the session's ``settings``.

    ``chosen`` has the test's value for each list in a mark. Raises UsageError for unknown names or values.
    """
    if any(mark.args for mark in marks):
        raise UsageError("arguments are given by name", hint="for example guest(cpu='pentium4')")
    for name, value in settings.items():
        try:
            checked({name: value})
        except UsageError as error:
            where = f"option --qemu-{name}, or setting qemu_{name}"
            raise UsageError(error.what, where=where, hint=error.hint) from None
    arguments = merged(marks)
    for name in unchosen(arguments, chosen):
        if name in GuestSpec.model_fields:
            what = "a list makes a test for each value, and pytest has made one test"
            hint = "name one value here, or move the test into a plain class: a unittest.TestCase has no parameters"
            raise UsageError(f"{name}: found {arguments[name]!r}; {what}", hint=hint)
    return checked({**settings, **choose(arguments, chosen)})


def read_expected_reports(marks: Sequence[pytest.Mark]) -> Sequence[re.Pattern[str]]:
    """The reports that a test's ``allow_oops`` marks permit. Raises UsageError as ``report_patterns`` does."""
    for mark in marks:
        if not mark.args or mark.kwargs:
            raise UsageError("regular expressions are expected", hint="for example allow_oops('WARNING: .* my_init')")
    return report_patterns(regex for mark in marks for regex in mark.args)


def check_no_arguments(marks: Sequence[pytest.Mark]) -> None:
    """Raise UsageError for arguments of a test's ``qemu`` marks."""
    if any(mark.args or mark.kwargs for mark in marks):
        raise UsageError("takes no arguments", hint="those of a guest are in the mark guest: guest(cpu='pentium4')")


def checked(arguments: Mapping[str, Any]) -> GuestSpec:
    """The guest of the arguments of marks. Raises UsageError for unknown names or values, and for an empty list."""
    for name, value in arguments.items():
        if name in GuestSpec.model_fields and name not in NO_CHOICES and isinstance(value, list | tuple) and not value:
            raise UsageError(f"{name}: found an empty list; expected a value, or a list with a value for each test")
    return guest_spec(arguments)


def described_arguments() -> str:
    """The arguments of the mark ``guest`` for ``pytest --markers``, each with its default and what it means."""
    summaries = guest_argument_summaries()
    return " ".join(f"{name}={field.default!r}: {summaries[name]}" for name, field in guest_arguments().items())
