# SPDX-License-Identifier: GPL-2.0-only
"""Charts that earlier pages have: equal results are drawn once. matplotlib takes 0.1 s for each, and 0.6 s to load."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from markupsafe import Markup

from orchestrator.report.chart import Chart
from orchestrator.report.html.surroundings import drawn
from orchestrator.results.faults import storage_faults
from orchestrator.whole_file import write_whole

_MOST = 400
"""Charts that are kept: 6 MB."""
_LARGEST_FILE = 64 << 20


class DrawnCharts:
    """The charts that were drawn last, in ``file``; ``program`` says what draws them."""

    def __init__(self, file: Path, program: str) -> None:
        self._file = file
        self._program = program
        self._charts = _loaded(file)
        self._is_saved = True

    def picture(self, chart: Chart, name: str) -> Markup:
        """A chart as an element of a page, whose ids begin with ``name``."""
        key = hashlib.sha256(repr((self._program, name, chart)).encode()).hexdigest()
        known = self._charts.pop(key, None)
        if known is None:
            known = str(drawn(chart, name))
            self._is_saved = False
        self._charts[key] = known  # the last one used is the last one kept
        if len(self._charts) > _MOST:
            del self._charts[next(iter(self._charts))]
        return Markup(known)  # noqa: S704 (drawn above)

    def save(self) -> None:
        """Keep them for the next build."""
        if not self._is_saved:
            with storage_faults(self._file):
                write_whole(self._file, json.dumps(self._charts))
            self._is_saved = True


def _loaded(file: Path) -> dict[str, str]:
    """What is kept; nothing where it is missing or damaged."""
    try:
        with file.open("rb") as opened:
            found = json.loads(opened.read(_LARGEST_FILE))
    except (OSError, ValueError):
        return {}
    return {key: one for key, one in found.items() if isinstance(one, str)} if isinstance(found, dict) else {}
