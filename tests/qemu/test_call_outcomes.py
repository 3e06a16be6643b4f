# SPDX-License-Identifier: GPL-2.0-only
"""Is what the calls returned recorded and shown, and a cell whose calls end otherwise than required failed?"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_boot import boot_of, measured_call, prepared_for
from static_programs import compile_program

from orchestrator.artifacts.cache import BuildContext, Cache
from orchestrator.errors import EvidenceError
from orchestrator.paths import cache_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.boot import ReadyGuest

KERNEL, OF_64_BITS = "lab-i386-up", "lab-x86_64-smp"
WORKLOADS = Path(__file__).with_name("workloads")
ENTRIES = [
    pytest.param(entry, marks=pytest.mark.guest(kernel=kernel, cpu=cpu, timing="instructions"))
    for kernel, cpu, entry in (
        (KERNEL, "pentium4", "sysenter"),
        (KERNEL, "pentium4", "int80"),
        (OF_64_BITS, "xeon-e5410", "syscall"),
        (OF_64_BITS, "xeon-e5410", "int80"),
    )
]

pytestmark = [pytest.mark.guest(kernel=KERNEL, timing="instructions"), pytest.mark.kernels(KERNEL, OF_64_BITS)]

Measure = Callable[..., CellRecord]


@pytest.fixture
def measured(ready: ReadyGuest, workshop: BuildContext, tmp_path: Path) -> Measure:
    """Measure the last cell of a table with this benchmark in the test's guest."""

    def measured(benchmark: str, table: str = "probes: [none]") -> CellRecord:
        spec = ready.artifacts.kernel.spec
        cpu = "xeon-e5410" if spec.needs_long_mode else "pentium4"
        file = tmp_path / "x.yaml"
        head = f"name: outcomes\nkernels: [{spec.name}]\nmachines: [{{cpu: {cpu}}}]\n"
        file.write_text(f"{head}{table}\nbenchmark: {{{benchmark}}}\n")
        boot = boot_of(file)
        return measured_call(prepared_for(ready, workshop, boot), boot.cells[-1])

    return measured


@pytest.mark.parametrize("entry", ENTRIES)
def test_a_call_that_always_fails_says_so(measured: Measure, entry: str) -> None:
    benchmark = f"name: syscall, call: close, arguments: [-1], calls: 500, repeats: 2, entry: {entry}"
    record = measured(benchmark, "probes: [none]\npoints: [vfs_read]")
    assert (record.status, record.parameters["entry"]) == ("ok", entry)
    assert record.parameters["arguments"] == "[-1]"
    assert record.parameters["outcome"] == "always EBADF"
    assert record.parameters["result_first"] == record.parameters["result_last"] == "EBADF (-9)"
    assert record.parameters["result_distinct"] == 1
    observed = record.parameters["result_calls"]
    assert isinstance(observed, int)
    assert observed > 500
    assert record.parameters["result_failed"] == observed
    assert record.parameters["result_values"] == f"EBADF x {observed}"


def test_a_call_that_succeeds_says_what_it_returned(measured: Measure) -> None:
    reading = "name: syscall, call: read, arguments: [%s, {buffer: 16}, 16], calls: 100, repeats: 2"
    assert measured(reading % 0).parameters["outcome"] in ("always 0", "always 16")
    assert measured("name: gtodbench, calls: 100").parameters["outcome"] == "always 0"
    mapping = measured(
        "name: syscall, call: mmap2, arguments: [0, 4096, 0, 34, -1, 0], calls: 5", "probes: [none]\npoints: [vfs_read]"
    )
    assert str(mapping.parameters["outcome"]).startswith("always success, ")
    assert str(mapping.parameters["result_first"]).startswith("0x")  # above 2 GiB, and no error


@pytest.mark.parametrize("clock", ["instructions", "wall"])
def test_a_call_that_uses_a_resource_up_is_not_called_disturbed(measured: Measure, clock: str) -> None:
    """A process has 1024 descriptors, a few of them for something else; each call takes two."""
    with pytest.raises(EvidenceError) as failed:
        measured("name: syscall, call: pipe2, arguments: [{buffer: 8}, 0]", f"probes: [none]\nclock: {clock}")
    match = re.fullmatch(
        r"the call's result changed from 0 to EMFILE after (5\d\d) calls of one process: the call uses a resource up",
        failed.value.what,
    )
    assert match is not None, failed.value.what
    assert f"a process has {int(match[1]) - 100} timed ones before the change" in failed.value.hint


def test_few_calls_that_use_a_resource_up_are_measured_and_the_counted_ones_noticed(measured: Measure) -> None:
    benchmark = "name: syscall, call: pipe2, arguments: [{buffer: 8}, 0], calls: 1, repeats: 2"
    record = measured(benchmark, "probes: [djprobe]")
    assert record.status == "ok"
    assert record.parameters["outcome"] == "always 0"
    counted = record.parameters["result_counted"]
    assert re.fullmatch(r"0 x 5\d\d, EMFILE x 4\d\d", str(counted))
    assert record.notes == (f"the counted calls ended otherwise than the timed ones: {counted}",)


def test_a_cell_whose_calls_end_otherwise_than_required_fails(measured: Measure) -> None:
    close = "name: syscall, call: close, arguments: [-1], calls: 100, repeats: 2"
    for expected in ("success", "ENOENT", "0"):
        complaint = f"expected {expected} of each call; the timed ones returned always EBADF"
        with pytest.raises(EvidenceError, match=complaint):
            measured(f"{close}, expect: {expected}")


def test_a_cell_whose_calls_end_as_required_is_measured(measured: Measure) -> None:
    reading = "name: syscall, call: read, arguments: [-1, {buffer: 16}, 16], calls: 100, repeats: 2"
    table = "probes: [djprobe]\nhandlers: [record]"
    required = measured(f"{reading}, expect: EBADF", table)
    assert required.value == measured(reading, table).value
    assert required.parameters["expect"] == "EBADF"
    assert required.parameters["result_counted"] == "EBADF x 1000"
    assert measured("name: gtodbench, calls: 100, repeats: 2, expect: 0").status == "ok"


def test_of_a_function_its_system_calls_are_recorded_and_of_a_program_its_exit_status(
    measured: Measure, workshop: BuildContext, tmp_path: Path
) -> None:
    shutil.copy(WORKLOADS / "reading.c", tmp_path)
    compile_program(BuildContext(Cache(cache_dir())), "i386", WORKLOADS / "whole.c", tmp_path / "whole")
    table = "probes: [none]\npoints: [vfs_read]"
    function = measured("name: workload, file: reading.c, calls: 100, repeats: 2, expect: success", table)
    program = measured("name: workload, file: whole, repeats: 6", table)
    for record in (function, program):
        assert record.parameters["exit_status"] == 0
    assert not any(name.startswith("result") for name in program.parameters)
    assert (function.parameters["outcome"], function.parameters["result_failed"]) == ("read always 1", 0)


def test_a_function_whose_system_calls_fail_says_so(measured: Measure, tmp_path: Path) -> None:
    text = (WORKLOADS / "reading.c").read_text()
    (tmp_path / "failing.c").write_text(text.replace("/dev/zero", "/dev/nothing"))
    table = "probes: [kprobe]\npoints: [ksys_read]"
    failing = "name: workload, file: failing.c, calls: 100, repeats: 2"
    record = measured(failing, table)
    assert (record.status, record.parameters["outcome"]) == ("ok", "read always EBADF")
    assert record.parameters["result_failed"] == record.parameters["result_calls"] == 100
    assert measured(f"{failing}, expect: EBADF", table).value == record.value
    for expected, found in (("success", "always EBADF"), ("EINVAL", "always EBADF")):
        with pytest.raises(EvidenceError, match=f"expected {expected} of each call; the read ones returned {found}"):
            measured(f"{failing}, expect: {expected}", table)
