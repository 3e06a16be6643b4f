# SPDX-License-Identifier: GPL-2.0-only
"""How far does a fleet reach? Real scheduler, real client, real workers; their guests are stand-ins.

What a stand-in reports was recorded on this machine, stretched to the mean length of a boot; it is a benchmark of the
lab, and never a result. ``FLEET_WORKERS`` and ``FLEET_BOOTS`` set its size (20 and 400, of eight seconds each): 200 and
20,000 take a quarter of an hour.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.fleet.key import made_key
from orchestrator.paths import data_dir

pytest.importorskip("distributed", reason="the extra fleet is not installed")
pytestmark = pytest.mark.qemu

WORKERS = int(os.environ.get("FLEET_WORKERS", "20"))
BOOTS = int(os.environ.get("FLEET_BOOTS", "400"))
MEAN = 8.0
"""Seconds of a boot: of a nightly with restored guests, whose boots have 5 to 40 cells, they take 3 to 20."""

HERE = Path(__file__).parent
BUSY = 0.95
"""The share of their time that slots have work."""


@contextlib.contextmanager
def _started(script: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    argv = [sys.executable, str(HERE / script), *map(str, arguments)]
    with subprocess.Popen(
        argv, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _spent(process: int) -> tuple[float, int]:
    """Seconds of CPU and bytes resident of a process."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    ticks = os.sysconf("SC_CLK_TCK")
    return (int(fields[11]) + int(fields[12])) / ticks, int(fields[21]) * os.sysconf("SC_PAGESIZE")


def test_slots_stay_busy(tmp_path: Path) -> None:
    key = made_key(tmp_path / "fleet.key")
    with contextlib.ExitStack() as processes:
        scheduler = processes.enter_context(_started("fleet_scheduler.py", key))
        assert scheduler.stdout is not None
        address = scheduler.stdout.readline().strip()
        # One is alone in its process, which is killed; the others share two.
        parts = [(0, 1), (1, (WORKERS - 1) // 2), (1 + (WORKERS - 1) // 2, WORKERS - 1 - (WORKERS - 1) // 2)]
        workers = [processes.enter_context(_started("fleet_stand_ins.py", address, key, *part)) for part in parts]
        wanted = {
            "address": address,
            "key": str(key),
            "experiment": str(data_dir("configs") / "quickstart.yaml"),
            "overrides": [],
            "workers": WORKERS,
            "boots": BOOTS,
            "mean": MEAN,
            "victim": workers[0].pid,
        }
        (tmp_path / "wanted.json").write_text(json.dumps(wanted))
        client = processes.enter_context(_started("fleet_client.py", tmp_path / "wanted.json"))
        answer, _ = client.communicate()
        found = json.loads(answer)
        cpu, resident = _spent(scheduler.pid)
    print(f"\n{WORKERS} workers, {BOOTS} boots of {MEAN} s:")
    for name, value in {**found, "scheduler_cpu": cpu, "scheduler_resident": resident}.items():
        print(f"  {name:20} {value:15,.3f}")
    assert found["boots"] == BOOTS
    assert found["outcomes"] == found["cells"]
    # One worker in WORKERS was killed behind a quarter of the work.
    assert found["busy"] >= BUSY * (1 - 0.75 / WORKERS) - 1 / BOOTS * WORKERS
    # Memory does not grow with the boots that were done.
    assert found["resident_end"] < 1.1 * found["resident_half"]
