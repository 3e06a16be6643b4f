# SPDX-License-Identifier: GPL-2.0-only
"""Is a wrong list of expected failures refused before anything runs, with what was found?"""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from orchestrator.guest.guest import Guest
from orchestrator.pytest_plugin.ktap_tests import Expected, KernelTests

NO_GUEST = cast(Guest, None)
"""Nothing is done with it."""


@pytest.mark.parametrize(
    ("expected", "found"),
    [
        (["one", "other"], r"takes reasons by the tests' names; found \['one', 'other'\]"),
        ({"one"}, r"takes reasons by the tests' names; found \{'one'\}"),
        ([], r"takes reasons by the tests' names; found \[\]"),
        (list(range(1000)), r"takes reasons by the tests' names; found \[0, 1, .{,80} \.\.\."),
        ({"one": None}, r"has no reason why 'one' fails; found None"),
        ({"one": "  "}, r"has no reason why 'one' fails; found '  '"),
        ({1: "no name"}, r"has no reason why 1 fails"),
    ],
)
def test_other_files_than_mappings_of_reasons_are_refused(tmp_path: Path, expected: object, found: str) -> None:
    tests = KernelTests(tmp_path, [])
    with pytest.raises(pytest.fail.Exception, match=f"^UsageError: expected= {found}"):
        tests.kunit(NO_GUEST, expected=cast(Expected, expected))
