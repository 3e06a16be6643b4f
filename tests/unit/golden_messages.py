# SPDX-License-Identifier: GPL-2.0-only
"""Are the messages for an interface's wrong inputs those of its file in ``golden/wrong``?"""

from __future__ import annotations

from pathlib import Path

from report_text import check_golden
from wrong_inputs import cases, tried


def check_messages(interface: str, folder: Path) -> None:
    """Fail unless each of twenty inputs or more gets its message."""
    inputs = cases(interface)
    assert len({case.title for case in inputs}) == len(inputs) >= 20
    shown: dict[str, str] = {}
    check_text(interface, "".join(tried(case, folder).section(shown) for case in inputs))


def check_text(interface: str, text: str) -> None:
    """Fail unless the golden file has this text, in which nothing succeeds or is of Python's or pydantic's."""
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
    check_golden(f"wrong/{interface}.txt", text)
