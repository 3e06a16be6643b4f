# SPDX-License-Identifier: GPL-2.0-only
"""What does the newest Linux at hand break, by mechanism and handler?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from command_line import CommandLine

from orchestrator.catalog.kernels import NEWEST
from orchestrator.catalog.probes import BASELINE, ProbeKind, probes
from orchestrator.paths import data_dir
from orchestrator.results.contract import CellRecord, RunRecord

KERNEL = f"debian-amd64@{NEWEST}"
HANDLERS = ("noop", "count", "record")
PLACES = {"security_*": "security_file_permission", "bpf_lsm_*": "bpf_lsm_file_permission"}
"""Functions in the path of read(2), for kinds that the kernel takes at some functions alone."""

NOPS = data_dir("configs") / "nops.c"
EXPERIMENT = """\
name: canary
clock: instructions
kernels: [{kernel}]
machines: [{{cpu: xeon-e5410}}]
handlers: [{handlers}]
tables:
  function:
    points: [vfs_read]
    benchmark: &read {{name: syscall, call: read, arguments: [0, 0, 0], calls: 500, repeats: 2, expect: 0}}
    probes: [{function}]
  system-call:
    benchmark: *read
    probes: [{call}]
  program:
    points: ["program:begins1"]
    benchmark: &nops {{name: workload, file: {nops}, calls: 500, repeats: 2}}
    probes: [{program}]
  nop:
    points: ["program:begins10"]
    benchmark: *nops
    probes: [{nop}]
"""
PLACE = """\
  {name}:
    points: [{place}]
    benchmark: *read
    probes: [none, {kinds}]
"""

pytestmark = [pytest.mark.qemu, pytest.mark.nightly("each kind of probe on the newest kernel: minutes")]


def experiment() -> str:
    """Every kind of the catalogue, where it can be."""

    def named(is_there: Callable[[ProbeKind], bool]) -> str:
        return ", ".join([BASELINE, *(name for name, kind in probes().items() if name != BASELINE and is_there(kind))])

    return EXPERIMENT.format(
        kernel=KERNEL,
        handlers=", ".join(HANDLERS),
        function=named(lambda kind: kind.site in ("kprobe", "ftrace") and not kind.functions),
        call=named(lambda kind: kind.site in ("hook", "tracepoint")),
        program=named(lambda kind: kind.site == "program" and kind.mechanism != "call"),
        nop=named(lambda kind: kind.site == "program" and kind.mechanism == "call"),
        nops=NOPS,
    ) + "".join(
        PLACE.format(
            name=place.replace("_", "-"),
            place=place,
            kinds=", ".join(name for name, kind in probes().items() if kind.functions == functions),
        )
        for functions, place in PLACES.items()
    )


def table(cells: Sequence[CellRecord]) -> str:
    """A line for each mechanism, with a mark for each reason below."""
    reasons: dict[str, int] = {}
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        mark: str = cell.status
        if cell.status != "ok":
            mark += f" [{reasons.setdefault(str(cell.reason), len(reasons) + 1)}]"
        rows.setdefault(f"{cell.table}: {cell.probe}", {})[cell.handler] = mark
    width = max(map(len, rows), default=0) + 2
    lines = [f"{'':{width}}" + "".join(f"{handler:20}" for handler in HANDLERS)]
    lines += [f"{name:{width}}" + "".join(f"{row.get(one, '-'):20}" for one in HANDLERS) for name, row in rows.items()]
    return "\n".join([*lines, *(f"[{number}] {reason}" for reason, number in reasons.items())])


def test_each_mechanism_on_the_newest_kernel(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    file = tmp_path / "canary.yaml"
    file.write_text(experiment())
    command = CommandLine(tmp_path / "lab")
    done = command.run("run", file)
    answer = command.run("report", "latest", "--format", "json")
    assert answer.returncode == 0, done.stderr + answer.stderr
    cells = RunRecord.model_validate_json(answer.stdout, strict=False).cells
    release = next(
        (str(cell.parameters["kernel_release"]) for cell in cells if cell.status == "ok"), "of an unknown release"
    )
    found = f"{KERNEL}, Linux {release}\n{table(cells)}"
    record_property("table", found)
    shown = {cell.probe for cell in cells}
    assert shown == set(probes()), f"not in the table: {sorted(set(probes()) - shown)}\n{found}"
    assert not [cell.id for cell in cells if cell.status == "failed"], found
    assert done.returncode == 0, done.stderr
