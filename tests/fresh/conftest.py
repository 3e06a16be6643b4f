# SPDX-License-Identifier: GPL-2.0-only
"""The option of the tests on fresh machines."""

from __future__ import annotations

import pytest
from fresh_machine import EXPIRED, RELEASES


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--fresh`` and ``--expired``."""
    text = "run both commands of the README, and more, on a fresh machine of this release: half an hour and longer"
    parser.addoption("--fresh", choices=RELEASES, metavar="|".join(RELEASES), help=text)
    text = "take a release for a fresh machine though its Release file on the mirror has expired"
    parser.addoption(EXPIRED, action="store_true", help=text)
