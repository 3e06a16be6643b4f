# SPDX-License-Identifier: GPL-2.0-only
"""Are the loops of the markers document exact, the same in two boots, and each proved to have been what it is named?"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import artifacts_of, boot_of, prepared_for
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import ModuleSource, render
from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.markers.kind import COUNTED_ROUNDS, MarkerCell, MarkerLoops, measure_marker
from orchestrator.benchmarks.markers.rows import MarkerRow, marker_benchmarks, marker_row
from orchestrator.catalog.kernels import kernels
from orchestrator.errors import EvidenceError, GuestError, GuestHang
from orchestrator.experiment.plan import Boot
from orchestrator.paths import data_dir
from orchestrator.probes.loading import load
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import Ready, Refused
from orchestrator.run.cell_records import without_number
from orchestrator.run.ready_guest import ReadyGuest
from orchestrator.run.ready_guest import ready_guest as another_ready_guest

CONFIG = data_dir("configs") / "markers-2006.yaml"
MARKER = 3
"""Instructions of a marker to which nothing is connected: load, test, branch."""
ARMED = {"immediate": "b001", "flag": "01"}
AGAIN = frozenset({"none", "memcpy-optimized", "empty-generic", "varargs", "static-key", "tracepoint", "int3"})
"""Loops that another boot counts: one of each mechanism."""
GUARDED = {name for name, row in marker_benchmarks().rows.items() if row.guarded}


def loops_on(kernel: str) -> Boot:
    machine = "machines=[{cpu: xeon-e5410}]" if kernels()[kernel].arch == "x86_64" else "machines=[{cpu: pentium4}]"
    return boot_of(CONFIG, f"kernels=[{kernel}]", machine)


def measured(
    ready: ReadyGuest, context: BuildContext, kernel: str, some: frozenset[str] | None = None
) -> dict[str, CellRecord]:
    """The records of a kernel's loops, or of some of them, by their names."""
    boot = loops_on(kernel)
    ready = prepared_for(ready, context, boot)
    cells = {cell.probe.removeprefix("marker."): cell for cell in boot.cells}
    return {name: outcome_of(ready, cell) for name, cell in cells.items() if some is None or name in some}


@pytest.fixture(scope="module")
def known() -> dict[str, dict[str, CellRecord]]:
    """The records of each kernel's shared guest, by kernel: two tests look at those of one."""
    return {}


def outcome_of(ready: ReadyGuest, cell: MarkerCell) -> CellRecord:
    prepared = ready.artifacts.cells[cell.id]
    if isinstance(prepared, Refused):
        return without_number(cell, prepared.status, prepared.reason)
    return measure_marker(ready, cell, prepared.setup, prepared.notes)


def on(name: str, cpu: str = "pentium4") -> tuple[pytest.MarkDecorator, pytest.MarkDecorator]:
    return pytest.mark.kernels(name), pytest.mark.guest(kernel=name, cpu=cpu, timing="instructions")


@pytest.mark.parametrize(
    ("kernel", "preemptible"),
    [
        pytest.param("lab-i386-up", False, marks=on("lab-i386-up")),
        pytest.param("lab-i386-smp-preempt", True, marks=on("lab-i386-smp-preempt")),
        pytest.param("debian-686", True, marks=[*on("debian-686"), ELSEWHERE]),
        pytest.param("lab-x86_64-smp-preempt", True, marks=on("lab-x86_64-smp-preempt", "xeon-e5410")),
    ],
)
def test_every_loop_is_exact_and_proved(
    ready: ReadyGuest,
    workshop: BuildContext,
    known: dict[str, dict[str, CellRecord]],
    kernel: str,
    preemptible: bool,
) -> None:
    records = known[kernel] = known.get(kernel) or measured(ready, workshop, kernel)
    assert set(records) == {"none", *marker_benchmarks().rows} - {"empty"}
    values = {}
    for name, record in records.items():
        row = marker_row(f"marker.{name}") if name != "none" else marker_row("none")
        assert row is not None
        if name in GUARDED and not preemptible:
            assert record.status == "unsupported"
            assert "this kernel has no preemption to disable" in (record.reason or "")
            continue
        if row.on_stack and kernels()[kernel].arch == "x86_64":
            assert record.status == "unsupported"
            assert "not on the stack" in (record.reason or "")
            continue
        check_proof(row, record)
        assert record.value is not None
        values[name] = record.value
    assert values["empty-optimized"] - values["none"] == values["memcpy-optimized"] - values["memcpy"] == MARKER
    assert values["empty-generic"] - values["none"] == values["memcpy-generic"] - values["memcpy"] == MARKER
    assert values["int3"] == values["none"]
    assert values["static-key"] == values["tracepoint"] == values["none"] + 1
    if preemptible:
        assert values["varargs"] > values["varargs-preemptible"]
        assert values["format-parsed"] > values["varargs-copied"] > values["varargs"]
    ready.guest.check_console()


def module_of(ready: ReadyGuest, cell: MarkerCell) -> Module:
    """The module with the loops, built for the guest."""
    prepared = ready.artifacts.cells[cell.id]
    assert isinstance(prepared, Ready), prepared
    assert isinstance(prepared.setup, Module)
    return prepared.setup


def check_proof(row: MarkerRow, record: CellRecord) -> None:
    assert record.status == "ok", record.reason
    assert record.evidence is not None
    assert len(set(record.samples)) == 1
    assert record.samples[0].is_integer()
    assert record.evidence.hits == (1000 if row.counting else 0)
    assert record.evidence.int3 == (2000 if row.place == "int3" and row.probe else 0)
    assert record.parameters.get("armed_bytes") == (ARMED[row.place] if row.counting and not row.probe else None)
    changed = record.evidence.probe_bytes != record.evidence.original_bytes
    assert changed == (row.probe is not None)
    if row.place == "immediate":
        assert record.evidence.original_bytes == "b000"
        assert record.evidence.probe_bytes == ("b001" if row.probe else "b000")


@pytest.mark.nightly("boots once more: three seconds; two boots execute the same in test_profile.py every day")
@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_another_boot_counts_the_same(
    ready: ReadyGuest, workshop: BuildContext, known: dict[str, dict[str, CellRecord]], tmp_path: Path
) -> None:
    artifacts = artifacts_of(workshop, loops_on("lab-i386-up"))
    first = known["lab-i386-up"] = known.get("lab-i386-up") or measured(ready, workshop, "lab-i386-up")
    with another_ready_guest(workshop, artifacts, tmp_path, "again", fresh=True) as again:
        second = measured(again, workshop, "lab-i386-up", AGAIN)
    assert {name: first[name].samples for name in AGAIN} == {name: record.samples for name, record in second.items()}


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_wrong_arguments_of_a_probe_are_detected(ready: ReadyGuest, workshop: BuildContext) -> None:
    """A probe that expects its arguments on the stack gets wrong ones in registers."""
    boot = loops_on("lab-i386-up")
    ready = prepared_for(ready, workshop, boot)
    cell = next(cell for cell in boot.cells if cell.probe == "marker.varargs-preemptible")
    module = module_of(ready, cell)
    wrong = marker_benchmarks().rows["varargs-preemptible"].model_copy(update={"counting": "fast_count"})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("orchestrator.benchmarks.markers.kind.marker_row", lambda probe: wrong)
        with pytest.raises(EvidenceError, match="1000 times with other arguments than were passed"):
            measure_marker(ready, cell, module, ())
    assert "lab_markers" not in ready.guest.get("/proc/modules").decode()


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_another_probe_than_the_row_s_is_found_out(
    ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker
) -> None:
    """A module that connects another function than the empty probe to be timed, and the right one to be counted."""
    boot = loops_on("lab-i386-up")
    ready = prepared_for(ready, workshop, boot)
    cell = next(cell for cell in boot.cells if cell.probe == "marker.varargs-preemptible")
    right = render("markers", {})
    main = right.files["lab_markers_main.c"]
    connects = "FORMAT, probe->function);"
    stranger = "static void stranger(const char *format, ...)\n{\n}\n\n"
    assert main.count(connects) == main.count("static int arm_loop(") == 1
    main = main.replace("static int arm_loop(", f"{stranger}static int arm_loop(")
    main = main.replace(connects, 'FORMAT, strstr(probe->name, "_empty") ? stranger : probe->function);')
    module = modules.built(ModuleSource(right.name, {**right.files, "lab_markers_main.c": main}))
    with pytest.raises(
        EvidenceError, match=r"^before the rounds, the marker of \w+ calls [0-9a-f]+, not varargs_empty"
    ):
        measure_marker(ready, cell, module, ())
    assert "lab_markers" not in ready.guest.get("/proc/modules").decode()


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
@pytest.mark.parametrize(
    ("loop", "timed", "counting"),
    [
        ("varargs", "varargs_empty", "varargs_count"),
        ("static_key", "key_empty", "key_count"),
        ("tracepoint", "trace_empty", "trace_count"),
        ("int3", "int3_empty", "int3_count"),
    ],
)
def test_a_probe_is_exchanged_in_its_connection(
    ready: ReadyGuest, modules: ModuleMaker, loop: str, timed: str, counting: str
) -> None:
    module = modules.rendered("markers", {})
    load(ready.guest, module.name, module.file)
    loops = MarkerLoops(ready.guest, module.name)
    try:
        assert loops.probe() == "-"
        with pytest.raises(GuestError):
            loops.exchange(counting)
        loops.connect(loop, timed)
        assert loops.probe() == timed
        assert loops.count(loop) == (0, 0)
        for _ in range(2):
            loops.exchange(counting)
            assert loops.probe() == counting
            assert loops.count(loop) == (COUNTED_ROUNDS, 0)
            loops.exchange(timed)
            assert loops.probe() == timed
            assert loops.count(loop) == (0, 0)
        with pytest.raises(GuestError):
            loops.exchange("trace_count" if loop != "tracepoint" else "key_count")
        assert loops.probe() == timed
        loops.disconnect()
        assert loops.probe() == "-"
    finally:
        ready.guest.succeed(["rmmod", module.name])
    ready.guest.check_console()


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_all_samples_are_kept_and_the_time_limit_is_heeded(ready: ReadyGuest, workshop: BuildContext) -> None:
    boot = loops_on("lab-i386-up")
    ready = prepared_for(ready, workshop, boot)
    cell = next(cell for cell in boot.cells if cell.probe == "marker.memcpy")
    once = outcome_of(ready, dataclasses.replace(cell, repeats=1))
    assert once.evidence is not None
    assert (len(once.samples), once.evidence.batches) == (2, 4)
    module = module_of(ready, cell)
    with pytest.raises(GuestHang, match="the cell's time limit of 0 s is over"):
        measure_marker(ready, dataclasses.replace(cell, time_limit=0), module, ())
    ready.guest.succeed(["rmmod", module.name])


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_a_probe_that_copies_nothing_is_found_out(ready: ReadyGuest, modules: ModuleMaker) -> None:
    module = modules.rendered("markers", {})
    load(ready.guest, module.name, module.file)
    loops = MarkerLoops(ready.guest, module.name)
    try:
        for loop, probe in (("varargs_copied", "varargs_copy"), ("format_parsed", "format_copy")):
            loops.connect(loop, probe)
            loops.timed(loop, 10, copies=True)
            loops.disconnect()
        # The copies of the run before are no copies of this one.
        loops.connect("varargs_copied", "varargs_empty")
        with pytest.raises(EvidenceError, match=r"the probe of varargs_copied copied '0 0+', and '1 [0-9a-f]+' was"):
            loops.timed("varargs_copied", 10, copies=True)
    finally:
        ready.guest.succeed(["rmmod", module.name])


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
def test_the_module_refuses_what_it_does_not_know(ready: ReadyGuest, modules: ModuleMaker) -> None:
    module = modules.rendered("markers", {})
    load(ready.guest, module.name, module.file)
    loops = MarkerLoops(ready.guest, module.name)
    try:
        for loop, probe in (("empty", "fast_empty"), ("varargs", "trace_empty"), ("nothing", "fast_empty")):
            with pytest.raises(EvidenceError, match=f"{probe} cannot be connected to {loop}: no such loop, or no"):
                loops.connect(loop, probe)
        loops.connect("varargs", "varargs_empty")
        with pytest.raises(EvidenceError, match="fast_empty cannot be connected to registers: another loop has"):
            loops.connect("registers", "fast_empty")
        loops.disconnect()
        with pytest.raises(GuestError):
            loops.timed("empty", 0)
        with pytest.raises(EvidenceError, match="reports 0 places of nothing"):
            loops.address("nothing", "flag")
    finally:
        ready.guest.succeed(["rmmod", module.name])
