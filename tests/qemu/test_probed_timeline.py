# SPDX-License-Identifier: GPL-2.0-only
"""Is a call's time line the cell's value, instruction by instruction, from the system call to its return?"""

from __future__ import annotations

import html
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from command_line import REDUCED, CommandLine
from elsewhere import ELSEWHERE

pytestmark = pytest.mark.qemu

ENTRIES = {"sysenter": "sysexit", "syscall": "sysretq", "int3": "iret"}
"""What leaves the kernel behind what entered it; 32-bit and 64-bit forms of iret have a letter more."""


def measured(command: CommandLine, folder: Path, kernel: str, cpu: str, *probes: str) -> None:
    table = {"kernels": [kernel], "machines": [{"cpu": cpu}], "probes": ["none", *probes], "profile": ["symbols"]}
    config = folder / "calls.yaml"
    config.write_text(json.dumps({"name": "calls", **table, "benchmark": {"name": "gtodbench"}}))
    done = command.run("run", config, *REDUCED)
    assert done.returncode == 0, done.stderr


def events(command: CommandLine, *cells: str) -> list[dict[str, Any]]:
    """The spans of a trace of cells of the latest run."""
    done = command.run("timeline", *(f"latest:{cell}" for cell in cells), "--format", "trace")
    assert done.returncode == 0, done.stderr
    assert command.qemus() == []
    return [load for load in json.loads(done.stdout)["traceEvents"] if load["ph"] == "X"]


def end(event: dict[str, Any]) -> int:
    behind: float = event["ts"] + event["dur"]
    return round(behind * 1000)


@pytest.mark.parametrize(
    ("kernel", "cpu", "slots"),
    [
        ("debian-686", "pentium4", 1),
        pytest.param("debian-amd64", "xeon-e5410", 1, marks=ELSEWHERE),
        pytest.param("debian-amd64@7.3", "xeon-e5410", 1, marks=ELSEWHERE),
    ],
)
def test_the_time_line_of_a_probed_call_is_its_value(tmp_path: Path, kernel: str, cpu: str, slots: int) -> None:
    command = CommandLine(tmp_path / "lab")
    measured(command, tmp_path, kernel, cpu, "kprobe")
    before = list((tmp_path / "lab").rglob("*"))
    found = events(command, "kprobe")
    assert list((tmp_path / "lab").rglob("*")) == before  # the run is as it was
    record = command.cells()["kprobe"]
    assert round(found[0]["dur"] * 1000) == record.value
    assert sum(one["args"]["own instructions"] for one in found) == record.value

    # By symbol, it is the profile of the same calls.
    counts: Counter[str] = Counter()
    for one in found:
        counts[one["name"]] += one["args"]["own instructions"]
    (profile,) = json.loads(command.run("profile", "latest", "kprobe", "--format", "json").stdout)
    listed: Counter[str] = Counter()
    for symbol in profile["symbols"]:
        module = f" [{symbol['module']}]" if symbol["module"] else ""
        listed[symbol["name"].partition(" ")[0] + module if module else symbol["name"]] += symbol["instructions"]
    assert counts == listed

    # The system call, the breakpoint, its handler, the single step, which ends in a breakpoint, and what follows it.
    entered = [one for one in found if "entered by" in one["args"]]
    assert [one["args"]["entered by"] for one in entered[1:]] == ["int3"] * (1 + slots)
    for one in entered:
        assert one["args"]["left by"].startswith(ENTRIES[one["args"]["entered by"]])
    handler = next(one for one in found if one["name"] == "kprobe_func [lab_kprobe]")
    slot = next(one for one in found if one["name"] == "kprobe's slot")
    first, second = entered[1:]
    assert first["ts"] < handler["ts"] < end(first) / 1000 <= slot["ts"] < second["ts"]
    after = next(one for one in found if one["name"] == "ktime_get_real_ts64")
    assert end(second) <= after["ts"] * 1000


@ELSEWHERE
def test_two_cells_are_compared_from_the_first_difference_on(tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    measured(command, tmp_path, "debian-686", "pentium4", "kprobe")
    page = tmp_path / "calls.html"
    done = command.run("timeline", "latest:none", "latest:kprobe", "--format", "html", "--output", page)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    text = html.unescape(page.read_text())
    assert " >    " in text
    assert "asm_exc_int3() {  /* int3 */" in text
    assert {event["tid"] for event in events(command, "none", "kprobe")} == {1, 2}


@ELSEWHERE
def test_a_kernel_that_has_changed_since_is_named(tmp_path: Path) -> None:
    """Here the record: the value is another one than the kernel's."""
    command = CommandLine(tmp_path / "lab")
    measured(command, tmp_path, "debian-686", "pentium4")
    (directory,) = (tmp_path / "lab" / "runs").iterdir()
    results = json.loads((directory / "results.json").read_text())
    results["cells"][0] |= {"value": 7.0, "samples": [7.0], "profile": None, "executed": None}
    (directory / "results.json").write_text(json.dumps(results))
    elsewhere = CommandLine(tmp_path / "other")
    done = elsewhere.run("timeline", f"{directory}:none")
    assert done.returncode == 1
    assert "now takes 422 instructions, and 7 in run" in done.stderr
    assert "nothing that the lab records differs" in done.stderr
