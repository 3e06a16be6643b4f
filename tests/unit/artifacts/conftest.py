# SPDX-License-Identifier: GPL-2.0-only
"""What tests of artifacts share: a cache of their own, and what is said while something is built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from debian_archive import SigningKey

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache


@pytest.fixture
def said() -> list[str]:
    """Lines of progress."""
    return []


@pytest.fixture
def warned() -> list[str]:
    """Warnings of what was built."""
    return []


@pytest.fixture
def context(tmp_path: Path, said: list[str], warned: list[str]) -> BuildContext:
    """A cache of the test's own."""
    return BuildContext(Cache(tmp_path / "cache"), say=said.append, warn=warned.append)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SigningKey]:
    """A key that signs archives."""
    made = SigningKey.make(tmp_path_factory.mktemp("key") / "home")
    yield made
    made.close()
