# SPDX-License-Identifier: GPL-2.0-only
"""Does a kernel that fails under a cell cost that cell alone, with a reason that says what happened?"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from command_line import QUICKSTART, REDUCED, CommandLine

from orchestrator.paths import data_dir

pytestmark = pytest.mark.qemu

FAULTY = Path(__file__).parent / "modules" / "faulty.c"

REASONS = {
    "null": r"the guest's kernel reported trouble \(oops in lab_fault_null \[lab_kprobe\]\)",
    "triple": r"QEMU ended \(status 0\) while running insmod",
    "spin": r"the guest hangs \(running insmod\): .*; its CPU is in lab_fault_spin \[lab_kprobe\]",
    "memory": r"the guest's kernel panicked while [^:]+: System is deadlocked on memory",
}


@pytest.mark.nightly("a run of four cells for each fault: two minutes")
@pytest.mark.parametrize("fault", REASONS)
def test_a_fault_costs_its_own_cell_only(fault: str, tmp_path: Path) -> None:
    for name in ("kmods", "images", "configs"):
        shutil.copytree(data_dir(name), tmp_path / "copy" / name)
    package = Path(__file__).parents[2] / "orchestrator"
    shutil.copytree(package, tmp_path / "copy" / "orchestrator", ignore=shutil.ignore_patterns("__pycache__"))
    template = FAULTY.read_text().replace('fault = ""', f'fault = "{fault}"')
    (tmp_path / "copy" / "kmods" / "templates" / "kprobe.c.j2").write_text(template)
    command = CommandLine(tmp_path / "lab", {"PYTHONPATH": str(tmp_path / "copy")})
    run = command.run("run", QUICKSTART, *REDUCED)
    assert run.returncode == 1, run.stderr
    cells = command.cells()
    states = {probe: cell.status for probe, cell in cells.items()}
    assert states == {"none": "ok", "kprobe": "failed", "jprobe": "ok", "djprobe": "ok"}
    assert re.search(REASONS[fault], cells["kprobe"].reason or "")
    assert command.qemus() == []


UNATTENDED = {
    "panic": r"panicked in lab_fault_panic \[own_panic\] while booting: this is only a test; the work had reached",
    "null": r"trouble \(oops in lab_fault_null \[own_null\]\); the work had reached",
    "triple": r"QEMU ended \(status 0\) while booting; the work had reached",
    "spin": r"no console output for 20 s; its CPU is in lab_fault_spin \[own_spin\]; the work had reached",
}
FLOOD = f"""\
name: flood
kernels: [lab-i386-up]
machines: [{{cpu: pentium4}}]
benchmark: {{name: ping-flood, packets: 100, repeats: 2}}
probes: [none, {", ".join(f"./{fault}.c" for fault in UNATTENDED)}]
"""


@pytest.mark.nightly("a run of six guests that work unattended: two minutes")
def test_a_fault_under_unattended_work_is_named_and_only_a_hang_may_be_slowness(tmp_path: Path) -> None:
    for fault in UNATTENDED:
        source = FAULTY.read_text().replace('fault = ""', f'fault = "{fault}"')
        (tmp_path / f"{fault}.c").write_text(source)
    (tmp_path / "x.yaml").write_text(FLOOD)
    command = CommandLine(tmp_path / "lab")
    run = command.run("run", tmp_path / "x.yaml", "--set", "time_limit=20")
    assert run.returncode == 1, run.stderr
    cells = command.cells()
    for fault, reason in UNATTENDED.items():
        cell = cells[f"{fault}.c"]
        assert cell.status == "failed"
        assert re.search(reason, cell.reason or "")
        assert ("only slow" in (cell.reason or "")) == (fault == "spin")
    assert cells["none"].status == "ok"
    assert command.qemus() == []
