# SPDX-License-Identifier: GPL-2.0-only
"""Are the messages for an interface's wrong inputs those of its file in ``golden/wrong``?"""

from __future__ import annotations

from pathlib import Path

import pytest
from wrong_inputs import GOLDEN, cases, tried


def check_messages(interface: str, folder: Path, config: pytest.Config) -> None:
    """Fail unless each of twenty inputs or more gets its message; ``--write-golden`` writes what they get."""
    inputs = cases(interface)
    assert len({case.title for case in inputs}) == len(inputs) >= 20
    shown: dict[str, str] = {}
    check_text(interface, "".join(tried(case, folder).section(shown) for case in inputs), config)


def check_text(interface: str, text: str, config: pytest.Config) -> None:
    """Fail unless the golden file has this text, in which nothing succeeds or is of Python's or pydantic's."""
    golden = GOLDEN / f"{interface}.txt"
    if config.getoption("write_golden"):
        golden.write_text(text, "utf-8")
    for word in (
        "\nstatus 0\n",
        "Traceback",
        "pydantic",
        "Input should",
        "String should",
        "<class",
        "Errno",
        "PosixPath",
    ):
        assert word not in text
    assert text == golden.read_text("utf-8")
