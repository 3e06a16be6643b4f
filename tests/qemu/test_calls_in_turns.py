# SPDX-License-Identifier: GPL-2.0-only
"""Does a counter of all CPUs move between them with every call, and one of each CPU never, in every guest alike?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from experiment_boot import artifacts_of, boot_of_calls, measured_call

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.benchmarks.calls import measurement
from orchestrator.errors import EvidenceError
from orchestrator.guest.qemu_facts import executes_spinning_cpus_in_turns
from orchestrator.paths import cache_dir
from orchestrator.profile.counted.turns import turns_of
from orchestrator.results.parameters import CONTENDED, CONTENDED_LINES, MOVED, MOVED_BY, ON_EACH_CPU
from orchestrator.run.ready_guest import ready_guest

OLD, KERNEL, CPUS = "debian-amd64", "debian-amd64@7.3", 4
pytestmark = pytest.mark.qemu


@pytest.mark.parametrize("kernel", [OLD, pytest.param(KERNEL, marks=pytest.mark.kernels(KERNEL))])
def test_two_cpus_count_the_same_again_and_a_wrong_clock_is_refused(
    kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel == OLD and not executes_spinning_cpus_in_turns():
        pytest.skip("the host's QEMU is older than 8.1, and starts no second CPU of Linux 6.1 on the exact clock")
    context = BuildContext(Cache(cache_dir()))
    boot = boot_of_calls(
        kernels=[kernel],
        machines=[{"cpu": "core-i7-1165g7", "smp": 2}],
        probes=["bpf-fentry"],
        handlers=["count-shared"],
        benchmark={"name": "syscall", "call": "prctl", "arguments": [3], "in_turns": True},
    )
    (shared,) = (cell for cell in boot.cells if cell.probe != "none")
    with ready_guest(context, artifacts_of(context, boot), tmp_path, "two") as ready:
        cell, other_cell = (measured_call(ready, shared) for _ in range(2))

        def one_late(*given: Any) -> Any:
            read, batches, *others = given
            return turns_of(read, [*batches[:-1], batches[-1]._replace(ticks=batches[-1].ticks + 1)], *others)

        monkeypatch.setattr(measurement, "turns_of", one_late)
        with pytest.raises(EvidenceError, match="instructions on all CPUs, and the clock"):
            measured_call(ready, shared)
    assert (cell.value, cell.samples, cell.parameters) == (other_cell.value, other_cell.samples, other_cell.parameters)
    assert ON_EACH_CPU.of(cell) == ", ".join([f"{cell.value:.10g}"] * 2)
    assert (MOVED.of(cell), CONTENDED.of(cell)) == (1, 2)


@pytest.mark.kernels(KERNEL)
@pytest.mark.nightly("boots two guests of four CPUs: half a minute")
def test_two_guests_count_the_same_on_four_cpus(tmp_path: Path) -> None:
    context = BuildContext(Cache(cache_dir()))
    benchmark: dict[str, Any] = {"name": "syscall", "call": "prctl", "arguments": [3], "in_turns": True, "repeats": 2}
    boot = boot_of_calls(
        kernels=[KERNEL],
        machines=[{"cpu": "core-i7-1165g7", "smp": CPUS}],
        probes=["none", "bpf-fentry"],
        handlers=["count", "count-shared"],
        benchmark=benchmark,
    )
    artifacts = artifacts_of(context, boot)
    found = []
    for name in ("one", "other"):
        with ready_guest(context, artifacts, tmp_path, name) as ready:
            records = [measured_call(ready, cell) for cell in boot.cells]
        found.append([(record.value, record.samples, record.parameters) for record in records])
    assert found[0] == found[1]
    plain, cell, _, shared = records
    assert len((ON_EACH_CPU.of(cell) or "").split(", ")) == CPUS
    assert plain.value is not None
    assert cell.value is not None
    assert cell.value > plain.value
    assert [MOVED.of(one) for one in (plain, cell, shared)] == [0, 0, 1]
    # An atomic addition loads and stores.
    assert (CONTENDED.of(shared), CONTENDED_LINES.of(shared)) == (2, 1)
    assert (MOVED_BY.of(shared) or "").startswith("BPF program")
