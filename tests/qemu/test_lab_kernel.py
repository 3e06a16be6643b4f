# SPDX-License-Identifier: GPL-2.0-only
"""Has a kernel built from source every mechanism of the documents of 2005 to 2009, each at the function's very entry?

Building it takes some nine minutes of one CPU where the cache has none yet. The other lab kernels are not built here.
"""

from __future__ import annotations

import pytest
from experiment_boot import boot_of_calls, measured_call, prepared_for
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.kernel_config import features
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.probes.arming import module_attached
from orchestrator.probes.evidence import check_armed, check_traps
from orchestrator.probes.point import find_entry
from orchestrator.run.ready_guest import ReadyGuest

KERNEL = "lab-i386-up"
INT3_PER_HIT = {
    "none": 0,
    "djprobe": 0,
    "kprobe-optimized": 0,
    "kprobe-boosted": 1,
    "kprobe": 2,
    "jprobe": 3,
}  # cheapest first

pytestmark = pytest.mark.guest(kernel=KERNEL, timing="instructions")


def test_every_mechanism_works_at_the_function_entry(ready: ReadyGuest, workshop: BuildContext) -> None:
    boot = boot_of_calls(
        kernels=[KERNEL],
        machines=[{"cpu": "pentium4"}],
        probes=[*INT3_PER_HIT, "kprobe-ftrace"],
        benchmark={"name": "gtodbench", "calls": 100, "repeats": 2},
    )
    ready = prepared_for(ready, workshop, boot)
    records = {cell.probe: measured_call(ready, cell) for cell in boot.cells}
    assert records.pop("kprobe-ftrace").status == "unsupported"
    for probe, record in records.items():
        assert record.status == "ok", record.reason
        assert record.evidence is not None
        assert record.evidence.symbol == "__ia32_sys_gettimeofday"
        assert record.evidence.int3 == record.evidence.hits * INT3_PER_HIT[probe]
    assert sorted(records, key=lambda probe: records[probe].value or 0.0) == list(INT3_PER_HIT)
    with pytest.raises(EvidenceError, match="1000 hits took 1000 breakpoint traps, not 2 each"):
        check_traps(probes()["kprobe"], 1000, 0, 1000)


def test_a_boosted_kprobe_is_not_single_stepped(ready: ReadyGuest, modules: ModuleMaker) -> None:
    """The kernel boosts a kprobe without a post-handler, which looks the same but for its traps."""
    symbol = "__ia32_sys_gettimeofday"
    point = find_entry(ready.guest, ready.symbols, symbol, 0)
    module = modules.probe("kprobe", symbol, 0)
    with module_attached(ready.guest, probes()["kprobe-boosted"], module, point, ready.symbols) as attachment:
        seen = attachment.wait_until_armed()
        check_armed(probes()["kprobe"], point, seen, "by its bytes and the kernel's list")
    with (
        pytest.raises(EvidenceError, match=r"^the probed instruction is boosted, and for kprobe it must be single-st"),
        module_attached(ready.guest, probes()["kprobe"], module, point, ready.symbols) as attachment,
    ):
        attachment.wait_until_armed()


def test_it_is_built_as_its_fragments_say(ready: ReadyGuest) -> None:
    assert features(ready.artifacts.kernel.config) == {
        "booster": "yes",
        "optprobes": "yes",
        "ftrace": "no",
        "preemption": "none",
        "hook": "no",
        "markers": "no",
        "kprobe lists": "2^6",
        "kprobe cache": "no",
        "HZ": "100",
        "SMP": "no",
    }
    version = ready.guest.succeed(["uname", "-srm"]).text
    assert version == f"Linux {ready.artifacts.kernel.release} i686\n"


def test_a_new_second_changes_no_sample(ready: ReadyGuest) -> None:
    """Two seconds of guest time: in each of them some calls take longer, and none of those is in a sample."""
    result = ready.guest.succeed(["gtodbench", "-n", "2000", "-r", "200"], time_limit=120)
    samples = [line.split()[4] for line in result.text.splitlines() if line.startswith("sample")]
    assert len(samples) == 200
    assert len(set(samples)) == 1
