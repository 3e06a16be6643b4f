# SPDX-License-Identifier: GPL-2.0-only
"""Tests look for damage in the user's kernels once in a process, as a command does, and not once for each command.

A Debian kernel's folder has 20,000 files, and to ask for their sizes and times takes a tenth of a second of a
processor; the source of a lab kernel has 80,000, for which each build of modules asks. The tests call hundreds of
commands in one process (``CommandLine.run``). Everywhere else each look is made: the tests of damage have caches of
their own.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from orchestrator.artifacts import digests
from orchestrator.paths import cache_dir


def look_once(config: pytest.Config) -> None:
    """Remember the undamaged kernels of the user's cache until pytest ends."""
    kernels, changed = {cache_dir() / kind for kind in ("debian", "kernels", "kernel-source")}, digests.changed
    undamaged: set[tuple[Path, str]] = set()

    def changed_once(folder: Path, known: digests.Known | None = None, *, unverified: str = "") -> str | None:
        if known is None and (folder, unverified) in undamaged and folder.is_dir():
            return None
        damage = changed(folder, known, unverified=unverified)
        if damage is None and folder.parent in kernels:
            undamaged.add((folder, unverified))
        return damage

    looking = patch.object(digests, "changed", changed_once)
    looking.start()
    config.add_cleanup(looking.stop)
