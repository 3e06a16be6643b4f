# SPDX-License-Identifier: GPL-2.0-only
"""Does a wrong experiment, command line or table of costs change nothing, and get the message of ``golden/wrong``?"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_messages import check_messages
from made_labs import make_lab


@pytest.mark.parametrize("interface", ["command-line", "experiment-file", "price-list"])
def test_messages_are_as_in_the_golden_file(interface: str, tmp_path: Path) -> None:
    make_lab(tmp_path / "lab")  # so that a misspelt run is not just the first one
    check_messages(interface, tmp_path)
