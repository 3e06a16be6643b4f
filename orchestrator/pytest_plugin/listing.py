# SPDX-License-Identifier: GPL-2.0-only
"""Which guests would a session start? ``--qemu-list``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

import pytest

from orchestrator.pytest_plugin.session import OPTIONS

_HEADINGS = ("tests", "kernel", "cpu", "smp", "memory", "timing", "image", "channel", "start")


def guest_lines(items: Sequence[pytest.Item]) -> Iterator[str]:
    """The lines of a table: each machine, how it starts, and the number of tests that get it."""
    wanted = Counter(_row(item) for item in items if OPTIONS in item.stash and "_guest_choice" in _fixtures(item))
    rows = [_HEADINGS, *((str(count), *row) for row, count in wanted.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    further = sum(OPTIONS in item.stash and "_guest_choice" not in _fixtures(item) for item in items)
    if further:
        yield f"{further} more tests start guests by themselves"


def _row(item: pytest.Item) -> tuple[str, ...]:
    options = item.stash[OPTIONS]
    fixtures = _fixtures(item)
    start = "booted" if options.fresh else "shared" if "shared_guest" in fixtures else "clean"
    hardware = (options.kernel.name, options.cpu.name, str(options.smp), f"{options.memory}M", options.timing)
    return (*hardware, options.image or "-", options.channel, start)


def _fixtures(item: pytest.Item) -> Iterable[str]:
    names: Iterable[str] = getattr(item, "fixturenames", ())
    return names
