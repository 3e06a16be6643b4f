# SPDX-License-Identifier: GPL-2.0-only
"""Is what the calls returned recorded and shown, and a cell whose calls end otherwise than required failed?"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from experiment_boot import boot_of, measured_call, prepared_for

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.errors import EvidenceError
from orchestrator.results.contract import CellRecord
from orchestrator.run.ready_guest import ReadyGuest

KERNEL = "lab-i386-up"
WORKLOADS = Path(__file__).with_name("workloads")

pytestmark = [pytest.mark.guest(kernel=KERNEL, timing="instructions"), pytest.mark.kernels(KERNEL)]

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


def test_each_call_that_fails_is_counted(measured: Measure) -> None:
    results = measured("name: syscall, call: close, arguments: [-1], calls: 500, repeats: 2").parameters
    assert results["result_failed"] == results["result_calls"]
    assert results["result_values"] == f"EBADF x {results['result_calls']}"


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


def test_a_cell_whose_calls_end_as_required_is_measured(measured: Measure) -> None:
    reading = "name: syscall, call: read, arguments: [-1, {buffer: 16}, 16], calls: 100, repeats: 2"
    table = "probes: [djprobe]\nhandlers: [record]"
    required = measured(f"{reading}, expect: EBADF", table)
    assert required.value == measured(reading, table).value
    assert required.parameters["expect"] == "EBADF"
    assert required.parameters["result_counted"] == "EBADF x 1000"


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
