# SPDX-License-Identifier: GPL-2.0-only
"""Does each wrong mark of a test end pytest, before a guest starts, with the message of ``golden/wrong``?"""

from __future__ import annotations

import shlex

import pytest
import yaml
from golden_messages import check_text
from wrong_inputs import DATA

# Pytester forgets what its runs import: without this each takes seconds.
from orchestrator.pytest_plugin import guest_pool  # noqa: F401

pytest_plugins = ["pytester"]

INPUTS = yaml.safe_load((DATA / "guest-mark.yaml").read_text("utf-8"))
TEST = "import pytest\n\n@pytest.mark.{mark}\ndef test_it(guest):\n    pass\n"


def said(pytester: pytest.Pytester, given: dict[str, str]) -> str:
    """What pytest says of a wrong mark, as a section of a golden file."""
    pytester.makepyfile(test_mine=TEST.format(mark=given["mark"]))
    options = ["--qemu", "--strict-markers", *shlex.split(given.get("options", ""))]
    # With --collect-only a mark that is taken for right makes the test fail, and starts no guest.
    result = pytester.runpytest_inprocess(*options, "--collect-only", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert result.ret == pytest.ExitCode.USAGE_ERROR, given["title"]
    message = result.stderr.str().replace(str(pytester.path), "HERE").strip()
    lines = [f"# {given['title']}", f"    @pytest.mark.{given['mark']}", f"$ pytest {' '.join(options)}", message]
    return "\n".join([*lines, f"status {int(result.ret)}", "", ""])


def test_messages_are_as_in_the_golden_file(pytester: pytest.Pytester) -> None:
    assert len({given["title"] for given in INPUTS}) == len(INPUTS) >= 20
    check_text("guest-mark", "".join(said(pytester, given) for given in INPUTS))


def test_a_test_without_a_wrong_mark_is_no_part_of_the_message(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(test_mine=TEST.format(mark="guest(smp=0)") + "\ndef test_other(guest):\n    pass\n")
    result = pytester.runpytest_inprocess("--qemu", "-p", "no:cacheprovider", "-p", "no:xdist")
    assert "test_it" in result.stderr.str()
    assert "test_other" not in result.stderr.str()
