# SPDX-License-Identifier: GPL-2.0-only
"""A store of a thousand runs of a hundred cells, as some years of nights leave it, with steps at known runs.

Each run has 24 tables of the four cells of the quickstart, exact to the instruction, and one on the wall clock. What
the exact ones cost changes by ``STEPS``, with the kernel's package, the compiler or QEMU; the wall clock's by
``WALL_STEPS``, in units of the scatter. One run of a hundred has a failed cell.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

from orchestrator.results.contract import CellRecord
from orchestrator.results.runs import RunIdentity, prepare_directory
from orchestrator.results.statistics import median
from orchestrator.results.store import Store

COMMAND = [sys.executable, "-c", "from orchestrator.cli.main import main; main()"]
RUNS = 1000
TABLES = 25
EXPERIMENT = "generated"
PROBES = ("none", "kprobe", "jprobe", "djprobe")
WALL_TABLE = "t24"
STEPS: Mapping[int, int] = {200: 14, 600: -3, 950: 1}
"""Instructions that a kprobe takes more from a run on, by its number."""
WALL_STEPS: Mapping[int, float] = {300: 3.0, 800: -4.0}
"""The same of a kprobe of the table ``WALL_TABLE``, in units of the scatter."""
WALL_SCATTER = 8.0
FAILED_EVERY = 100
"""In each so-manieth run the last table's jprobe has failed."""

_GOLDEN = Path(__file__).parents[1] / "unit" / "golden" / "report.json"
_BEGUN = datetime(2024, 1, 1, 1, 0, tzinfo=UTC)
_QEMU = "QEMU emulator version 7.2.{} (Debian 1:7.2+dfsg-7+deb12u{})"
_PACKAGE = "linux-image-6.1.0-{}-686"
_FAILURE = "the guest was silent for 180 s\nconsole: BUG: soft lockup - CPU#0 stuck for 22s!"


@dataclass(frozen=True)
class Night:
    """A run by its number from 0 on: what it was made with."""

    number: int

    @property
    def began(self) -> datetime:
        """When; one a day."""
        return _BEGUN + timedelta(days=self.number)

    @property
    def facts(self) -> dict[str, object]:
        """The tools, of which QEMU is another from the second step on, and the compiler never."""
        update = 18 + (self.number >= 600)
        return {
            "orchestrator": "0.1.0",
            "python": "3.11.7",
            "qemu": _QEMU.format(update + 4, update),
            "compiler": "gcc (Debian 12.2.0-14+deb12u1) 12.2.0",
            "guests": "Debian 12",
            "host": {"kernel": "6.1.0-56-amd64", "machine": "x86_64", "cpus": 2},
        }

    @property
    def kernel(self) -> dict[str, object]:
        """The guests' kernel, of which the package is another from the first and from the third step on."""
        update = 54 + (self.number >= 200) + (self.number >= 950)
        return {
            "name": "debian-686",
            "release": f"6.1.0-{update}-686",
            "packages": {_PACKAGE.format(update): f"6.1.{update + 100}-1"},
            "origin": {},
            "image_sha256": f"{update:064x}",
        }


def exact_change(number: int) -> int:
    """What a kprobe takes more in a run than in the first one, in instructions."""
    return sum(change for run, change in STEPS.items() if number >= run)


def generate(lab: Path, runs: int = RUNS, first: int = 0) -> None:
    """Write runs from number ``first`` on into the store in ``lab``; of each ``run.json`` and ``provenance.json``."""
    templates = _templates()
    chance = random.Random(1 + first)
    with patch("orchestrator.results.store.datetime") as clock, Store.open(lab) as store:
        for number in range(first, first + runs):
            night = Night(number)
            clock.now.return_value = night.began
            cells = list(_cells(templates, number, chance))
            entry = store.begin_run(EXPERIMENT, [cell.id for cell in cells], digest="1" * 64, provenance=night.facts)
            for cell in cells:
                store.record(entry.id, cell)
            clock.now.return_value = night.began + timedelta(minutes=5)
            store.finish_run(entry.id, "complete")
            prepare_directory(entry.directory, RunIdentity(run=entry.id, experiment=EXPERIMENT))
            boots = [{"name": "boot1/guest1", "qemu": ["qemu-system-i386"], "kernel": night.kernel, "modules": {}}]
            content = {"sessions": [night.facts], "boots": boots}
            (entry.directory / "provenance.json").write_text(json.dumps(content, indent=1) + "\n")


def _templates() -> Mapping[str, dict[str, Any]]:
    """The golden cells with a number by their probes; the jprobe is a kprobe of three traps instead of two."""
    cells = {cell["probe"]: cell for cell in json.loads(_GOLDEN.read_text("utf-8"))["cells"]}
    jprobe = {**cells["kprobe"], "probe": "jprobe", "id": cells["jprobe"]["id"]}
    jprobe["evidence"] = {**jprobe["evidence"], "int3": 15000}
    return {**cells, "jprobe": jprobe}


def _cells(templates: Mapping[str, dict[str, Any]], number: int, chance: random.Random) -> Iterator[CellRecord]:
    for table in range(TABLES):
        name = f"t{table:02}"
        for probe in PROBES:
            fields = {**templates[probe], "table": name, "id": f"{name}/{templates[probe]['id']}"}
            if name == WALL_TABLE:
                failed = probe == "jprobe" and number % FAILED_EVERY == FAILED_EVERY - 1
                yield CellRecord.model_validate(_failed(fields) if failed else _timed(fields, number, chance))
            else:
                yield CellRecord.model_validate(_counted(fields, number, table))


def _counted(fields: dict[str, Any], number: int, table: int) -> dict[str, Any]:
    change = exact_change(number) if fields["probe"] == "kprobe" else 0
    value, overhead = fields["value"] + table + change, fields["overhead"] + change
    return {**fields, "samples": [value] * 4, "value": value, "overhead": overhead, "interval": [overhead] * 2}


def _timed(fields: dict[str, Any], number: int, chance: random.Random) -> dict[str, Any]:
    level = fields["value"]
    if fields["probe"] == "kprobe":
        level += WALL_SCATTER * sum(change for run, change in WALL_STEPS.items() if number >= run)
    centre = chance.gauss(level, WALL_SCATTER)
    samples = [round(chance.gauss(centre, 2.0), 1) for _ in range(4)]
    value = median(samples)
    overhead = value - 409.0
    wall = {"clock": "wall", "unit": "ns", "samples": samples, "value": value}
    return {**fields, **wall, "overhead": overhead, "interval": [overhead - 10, overhead + 10]}


def _failed(fields: dict[str, Any]) -> dict[str, Any]:
    nothing: dict[str, Any] = {"samples": [], "value": None, "overhead": None, "interval": None, "evidence": None}
    return {**fields, **nothing, "status": "failed", "reason": _FAILURE, "clock": "wall", "unit": "ns"}


@dataclass(frozen=True)
class Cost:
    """Of a command: seconds, CPU seconds, the most memory in MB, and what it said."""

    seconds: float
    used: float
    memory: float
    said: str = ""


def cost(lab: Path, *arguments: str) -> Cost:
    """Call the command on this store."""
    environment = {**os.environ, "ORCHESTRATOR_LAB": str(lab)}
    said = lab / "said"
    begun = time.perf_counter()
    with said.open("w") as stream:
        process = subprocess.Popen([*COMMAND, *arguments], env=environment, stdout=subprocess.DEVNULL, stderr=stream)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0
    seconds = time.perf_counter() - begun
    return Cost(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, said.read_text())
