# SPDX-License-Identifier: GPL-2.0-only
"""A configured kernel tree that stands for its kernel before that is built."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.catalog.kernels import BOOT_MARK, IMAGE, RELEASE

_PLACEHOLDERS = {RELEASE: b"not built yet\n", IMAGE: bytes(BOOT_MARK[0]) + BOOT_MARK[1]}
"""What the catalogue looks for in a build tree: the release, and the header of a bzImage."""


@contextmanager
def unbuilt_tree(tree: Path) -> Iterator[None]:
    """Let the catalogue take a configured tree for a kernel, so that an experiment on it can be read and checked.

    Files that the tree lacks are there within the context only; an earlier build is left as it is.
    """
    lacking = {tree / name: content for name, content in _PLACEHOLDERS.items() if not (tree / name).is_file()}
    try:
        for file, content in lacking.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
        yield
    finally:
        for file in lacking:
            file.unlink(missing_ok=True)
