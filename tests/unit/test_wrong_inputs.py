# SPDX-License-Identifier: GPL-2.0-only
"""Does each wrong input of what builds and starts things get the message that ``golden/wrong`` has for it?"""

from __future__ import annotations

from pathlib import Path

import pytest
from golden_messages import check_messages
from wrong_inputs import make_tree

INTERFACES = ("modules", "images", "disks", "cache", "programs", "kernels", "fleet-hosts")


@pytest.mark.parametrize("interface", INTERFACES)
def test_messages_are_as_in_the_golden_file(interface: str, tmp_path: Path) -> None:
    make_tree(tmp_path)
    check_messages(interface, tmp_path)
