# SPDX-License-Identifier: GPL-2.0-only
"""Is each reason for skipped tests said once, and before what failed?"""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]


def test_each_reason_has_a_line_and_failures_come_last(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(
        """
        from suite_report import write_skip_summary

        def pytest_terminal_summary(terminalreporter):
            write_skip_summary(terminalreporter)
        """
    )
    pytester.makepyfile(
        """
        import pytest

        @pytest.mark.skip(reason="no kernel")
        def test_one(): pass
        @pytest.mark.parametrize("number", range(10))
        def test_ten(number): pytest.skip("no image")
        @pytest.mark.skip(reason="no kernel")
        class TestOthers:
            def test_two(self): pass
        def test_wrong(): assert False
        """
    )
    result = pytester.runpytest("-rf")
    result.assert_outcomes(skipped=12, failed=1)
    result.stdout.fnmatch_lines(
        [
            "* skipped tests, and why *",
            "   10 no image",
            "    2 no kernel",
            "* short test summary info *",
            "FAILED *::test_wrong *",
        ],
        consecutive=True,
    )
