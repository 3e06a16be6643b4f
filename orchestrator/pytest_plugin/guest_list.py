# SPDX-License-Identifier: GPL-2.0-only
"""The guests of a session as a table: ``--qemu-list``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence, Set

import pytest

from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.pytest_plugin.session import SPEC

_HEADINGS = ("tests", "kernel", "cpu", "smp", "memory", "timing", "image", "channel", "start")


def guest_lines(items: Sequence[pytest.Item]) -> Iterator[str]:
    """The lines of a table: each machine, how tests get it, and the number of tests."""
    marked = [(item.stash[SPEC], set(getattr(item, "fixturenames", ()))) for item in items if SPEC in item.stash]
    counts = Counter(row for spec, fixtures in marked for row in _rows(spec, fixtures))
    rows = [_HEADINGS, *((str(count), *row) for row, count in counts.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    further = sum("_guest_choice" not in fixtures for _, fixtures in marked)
    if further:
        yield f"{further} more tests start guests by themselves"


def _rows(spec: GuestSpec, fixtures: Set[str]) -> Iterator[tuple[str, ...]]:
    hardware = (spec.kernel_spec.name, spec.cpu_model.name, str(spec.smp), spec.memory, spec.timing)
    for start in _starts(fixtures, fresh=spec.fresh):
        yield (*hardware, spec.image or "-", spec.channel, start)


def _starts(fixtures: Set[str], *, fresh: bool) -> Iterator[str]:
    """How a test with these fixtures gets guests. Another fixture may request one at run time."""
    named = fixtures & {"guest", "shared_guest", "guest_factory", "_tests_guest"}
    if "_guest_choice" in fixtures and not named:
        yield "if a fixture asks"
    if "shared_guest" in fixtures:
        yield "shared, booted" if fresh else "shared"
    if "guest" in fixtures or ("_tests_guest" in fixtures and "shared_guest" not in fixtures):
        yield "booted" if fresh else "clean"
    if "guest_factory" in fixtures:
        yield "several, booted"
