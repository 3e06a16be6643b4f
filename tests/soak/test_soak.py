# SPDX-License-Identifier: GPL-2.0-only
"""Does one process that starts many guests and measures many cells hold more and more of the host?

Opt-in, an hour: ./lab test tests/soak --soak-pictures docs
"""

from __future__ import annotations

import io
import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from held import Holdings

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernels
from orchestrator.cli.main import app
from orchestrator.errors import CommandTimeout, GuestError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.paths import cache_dir
from orchestrator.report.drawing import svg_text
from orchestrator.results.contract import RunRecord
from orchestrator.run.guest_start import start_guest
from orchestrator.run.machines import machine_for

EXPERIMENT = Path(__file__).with_name("experiment.yaml")
LOOKS = 40
BYTES_A_GUEST = BYTES_A_CELL = 200
"""Of Python's own memory: the smallest object that stays, with what refers to it, has more."""

pytestmark = pytest.mark.qemu


@pytest.fixture
def holdings(own_folders: Path) -> Iterator[Holdings]:
    """What this process holds, and what is left in the folders that the lab writes to."""
    held = Holdings([own_folders / "cache", own_folders / "lab", own_folders / "temporary"])
    yield held
    held.close()


def test_restored_guests(
    holdings: Holdings, own_folders: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """They end in every way: killed, in order, from another thread, and with a command that does not end."""
    context = BuildContext(Cache(cache_dir()))
    kernel = ready_kernel(context, kernels()["lab-i386-up"])
    machine = machine_for(context, kernel, GuestSpec(cpu="pentium4", memory="128M", timing="instructions"))
    total = pytestconfig.getoption("soak_guests")
    every, ways = max(1, total // LOOKS), [kill, power_off, abort, cut_off]
    for number in range(1, total + 1):
        guest = start_guest(context, Guest(machine, own_folders / "lab"))
        assert guest.restored_from is not None
        guest.put(b"content", "/tmp/file")
        assert guest.get("/tmp/file") == b"content"
        ways[number % len(ways)](guest)
        if number == total // 5:
            holdings.warmed_up(number)
        elif number > total // 5 and (number % every == 0 or number == total):
            holdings.look(number)
    try:
        holdings.check(BYTES_A_GUEST)
    finally:
        finish(holdings, "Restored guests", "guests", pytestconfig, capsys)


def test_cells(
    holdings: Holdings, own_folders: Path, pytestconfig: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Runs by the command line's own code, side by side in two guests; each run's folder is then removed."""
    total = pytestconfig.getoption("soak_cells")
    measured, warm = 0, total // 5
    while measured < total:
        folder = own_folders / "run"
        printed = io.StringIO()
        with redirect_stdout(printed), redirect_stderr(printed):
            status = app(["run", str(EXPERIMENT), "--out", str(folder), "--jobs", "2"], standalone_mode=False)
        assert status == 0, printed.getvalue()
        cells = RunRecord.model_validate_json((folder / "results.json").read_text(), strict=False).cells
        assert {cell.status for cell in cells} == {"ok"}
        shutil.rmtree(folder)
        before, measured = measured, measured + len(cells)
        if before < warm <= measured:
            holdings.warmed_up(measured)
        elif measured > warm:
            holdings.look(measured)
    try:
        holdings.check(BYTES_A_CELL)
    finally:
        finish(holdings, "Cells", "cells", pytestconfig, capsys)


def kill(guest: Guest) -> None:
    guest.kill()


def power_off(guest: Guest) -> None:
    guest.power_off()


def abort(guest: Guest) -> None:
    thread = threading.Thread(target=guest.abort)
    thread.start()
    with pytest.raises(GuestError):
        guest.run(["sleep", "1000"])
    thread.join()
    guest.kill()


def cut_off(guest: Guest) -> None:
    with pytest.raises(CommandTimeout):
        guest.run(["sh", "-c", "while :; do :; done"], time_limit=0.2)
    guest.succeed(["true"])
    guest.kill()


def finish(
    holdings: Holdings, title: str, across: str, config: pytest.Config, capsys: pytest.CaptureFixture[str]
) -> None:
    """Say what was held at the beginning and in the end, and draw it."""
    with capsys.disabled():
        print(f"\n{title}: {holdings}")
    folder: Path | None = config.getoption("soak_pictures")
    if folder is not None:
        (folder / f"soak-{across}.svg").write_text(small(svg_text(holdings.chart(title, across))))


def small(svg: str) -> str:
    """The same picture in three fifths of the bytes: tenths of a pixel, one font, neither indented nor with names."""
    for pattern, instead in (
        (r"(\d\.\d)\d{3,}", r"\1"),  # not the labels', as 0.25
        (r"(?m)^ +| +$", ""),
        (r"font-family: [^;\"]*", "font-family: sans-serif"),
        (r' transform="rotate\(-0 [^"]*"', ""),
        (r'<g id="[^"]*">', "<g>"),
    ):
        svg = re.sub(pattern, instead, svg)
    return svg
