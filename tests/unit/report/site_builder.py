# SPDX-License-Identifier: GPL-2.0-only
"""A process of its own that builds a site, for the tests that kill one or run two at once.

Arguments: the lab, the site's folder, and the number of files that are written before it ends at once, with status 9.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

from orchestrator.benchmarks.registry import reports
from orchestrator.pages.site.building import build_site
from orchestrator.report.html import pictures
from orchestrator.results.store import Store


def die_after(files: Iterator[int]) -> None:
    """End this process where the last file is written, but does not have its name yet."""
    replace = Path.replace

    def counted(path: Path, target: Path) -> Path:
        if next(files, None) is None:
            os._exit(9)
        return replace(path, target)

    Path.replace = counted  # type: ignore[assignment]


if len(sys.argv) > 3:
    die_after(iter(range(int(sys.argv[3]) - 1)))
# It takes longer to load matplotlib than to build the site.
with patch.object(pictures, "find_spec", lambda name: None), Store.open(Path(sys.argv[1])) as store:
    build_site(store, Path(sys.argv[2]), reports())
