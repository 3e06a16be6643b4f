# SPDX-License-Identifier: GPL-2.0-only
"""The fixture ``ktap``: third-party tests in a guest, with a result for each, and expected failures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard

import pytest

from orchestrator.errors import ConfigError, UsageError
from orchestrator.experiment.source import read_source
from orchestrator.guest.kernel_tests import ftracetest_results, kunit_results, program_results
from orchestrator.ktap.results import TestRun, judged
from orchestrator.plain_text import cut

if TYPE_CHECKING:
    from orchestrator.guest.guest import Guest


# Expected failures of third-party tests, as a test or a YAML file lists them.

_QUOTED = 60


def check_expected(expected: object) -> Mapping[str, str]:
    """Reasons by test name, as a test passes them. Raises UsageError for anything but such a mapping."""
    if not isinstance(expected, Mapping):
        hint = "expected={'a test': 'why it fails'}, or the path of a YAML file with such lines"
        raise UsageError(f"expected= takes reasons by the tests' names; found {_quoted(expected)}", hint=hint)
    for name, reason in expected.items():
        if not isinstance(name, str) or not _is_reason(reason):
            raise UsageError(f"expected= has no reason why {name!r} fails; found {_quoted(reason)}")
    return expected


def read_expected(path: Path) -> Mapping[str, str]:
    """Reasons by test name. Raises ConfigError, with file and line, for anything but such a mapping."""
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
    return cut(repr(value), _QUOTED)


TIME_LIMIT = 600.0
"""Host seconds for a program, or for all of ftracetest's cases."""

Expected = str | Path | Mapping[str, str] | None
"""Expected failures: reasons by test name, or a YAML file of them, its path relative to the test's."""


class KernelTests:
    """Runs the kernel's own tests, and reports each as a result of its own, ``test_mine[NAME]``.

    Every method fails the test if one of them fails unexpectedly or passes though a failure was ``expected``, if none
    ran, or if the output is damaged or ends early.
    """

    def __init__(self, folder: Path, recorded: list[dict[str, Any]]) -> None:
        self._folder, self._recorded = folder, recorded

    def kunit(self, guest: Guest, *suites: str, expected: Expected = None) -> None:
        """Report the results of KUnit suites, by default all that ran, from their files in debugfs."""
        reasons = self._reasons(expected)
        self.report(kunit_results(guest, suites), expected=reasons)

    def program(
        self, guest: Guest, argv: Sequence[str], *, expected: Expected = None, time_limit: float = TIME_LIMIT
    ) -> None:
        """Run a program of the guest that prints KTAP or TAP: a kselftest, or its ``run_kselftest.sh``."""
        reasons = self._reasons(expected)
        self.report(program_results(guest, argv, time_limit=time_limit), expected=reasons)

    def ftracetest(
        self, guest: Guest, folder: str, *cases: str, expected: Expected = None, time_limit: float = TIME_LIMIT
    ) -> None:
        """Run ``ftracetest`` in a folder of the guest; ``cases`` are ``.tc`` files in it, or folders of them."""
        reasons = self._reasons(expected)
        self.report(ftracetest_results(guest, folder, cases, time_limit=time_limit), expected=reasons)

    def report(self, run: TestRun, *, expected: Expected = None) -> None:
        """Report an existing run's results, such as those of ``guest.ktap()``."""
        verdict = judged(run, self._reasons(expected))
        self._recorded += [
            {"name": name, "outcome": str(result.outcome), "reason": result.reason, "lines": list(result.lines)}
            for name, result in verdict.results.items()
        ]
        if verdict.complaints:
            pytest.fail("\n".join(verdict.complaints), pytrace=False)

    def _reasons(self, expected: Expected) -> Mapping[str, str]:
        """The reasons; a wrong list fails the test before anything runs, which may take minutes."""
        try:
            if isinstance(expected, str | Path):
                return read_expected(self._folder / expected)
            return check_expected({} if expected is None else expected)
        except UsageError as error:
            sentence = f"{type(error).__name__}: {error}"
        pytest.fail(sentence, pytrace=False)  # outside of the handler, whose error would be shown too
