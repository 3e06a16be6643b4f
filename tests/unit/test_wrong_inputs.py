# SPDX-License-Identifier: GPL-2.0-only
"""Does each wrong input change nothing, and get the message that ``golden/wrong`` has for it?"""

from __future__ import annotations

from pathlib import Path

import pytest
from wrong_inputs import GOLDEN, cases, make_tree, tried

INTERFACES = ("modules", "images", "disks", "cache", "programs", "kernels", "fleet-hosts")


@pytest.mark.parametrize("interface", INTERFACES)
def test_messages_are_as_in_the_golden_file(interface: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    make_tree(tmp_path)
    shown: dict[str, str] = {}
    text = "".join(tried(case, tmp_path).section(shown) for case in cases(interface))
    golden = GOLDEN / f"{interface}.txt"
    if request.config.getoption("write_golden"):
        golden.write_text(text, "utf-8")
    assert text == golden.read_text("utf-8")


@pytest.mark.parametrize("interface", INTERFACES)
def test_there_are_twenty_different_ones(interface: str) -> None:
    assert len({case.title for case in cases(interface)}) == len(cases(interface)) >= 20
