# SPDX-License-Identifier: GPL-2.0-only
"""The option of the tests on fresh machines."""

from __future__ import annotations

import pytest
from fresh_machine import RELEASES


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--fresh``."""
    text = "run both commands of the README, and more, on a fresh machine of this release: half an hour and longer"
    parser.addoption("--fresh", choices=RELEASES, metavar="|".join(RELEASES), help=text)
