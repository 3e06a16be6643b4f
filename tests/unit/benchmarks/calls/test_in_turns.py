# SPDX-License-Identifier: GPL-2.0-only
"""Do tables of calls in turns ask for what can be counted, and does a report show all numbers of CPUs side by side?"""

from __future__ import annotations

from typing import Any

import pytest
from drawn_charts import curve_charts
from host_toolchain import a_kernel
from loaded_tables import calls_experiment
from pydantic import ValidationError
from record_builders import cell, failed, run
from report_text import printed

from orchestrator.benchmarks.calls.preparation import unsupported_reason
from orchestrator.experiment.plan import plan
from orchestrator.guest import qemu_facts
from orchestrator.results.contract import CellRecord
from orchestrator.results.parameters import CONTENDED, IN_TURNS, MOVED, MOVED_BY

IN_TURNS_OF_TWO: dict[str, Any] = {
    "machines": [{"cpu": "athlon64", "smp": 2}],
    "kernels": ["debian-amd64@7.3"],
    "probes": ["none", "bpf-fentry"],
    "handlers": ["count-shared"],
    "benchmark": {"name": "gtodbench", "in_turns": True},
}
PARALLEL = ["CONFIG_HOTPLUG_PARALLEL"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"clock": "wall"}, "calls in turns are counted in instructions"),
        ({"points": "executed"}, "made at points that the experiment names"),
        ({"profile": ["symbols"]}, "calls in turns have none"),
        ({"probes": ["none", "tool: opensnoop"]}, "between calls in turns nothing reads what its programs send"),
        ({"probes": ["bpftrace: kprobe:f { @ = count(); }"]}, "between calls in turns nothing reads"),
        ({"benchmark": {"name": "gtodbench"}}, "clock 'wall' and calls in_turns take more"),
    ],
)
def test_what_calls_in_turns_cannot_have_is_an_error(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        calls_experiment(**{**IN_TURNS_OF_TWO, **changed})
    assert words in str(refused.value.errors())


OLD, NEW = (f"QEMU emulator version {release}" for release in ("7.2.22 (Debian 1:7.2)", "8.1.0"))


@pytest.mark.parametrize(
    ("qemu", "kernel", "options", "probe", "reason"),
    [
        (
            OLD,
            "debian-amd64",
            [],
            "none",
            "several CPUs on the exact clock need QEMU 8.1 or newer, or a kernel with CONFIG_",
        ),
        (NEW, "debian-amd64", [], "none", ""),
        (OLD, "debian-amd64@7.3", PARALLEL, "none", ""),
        (NEW, "debian-686", PARALLEL, "none", "several CPUs on the exact clock need a kernel for x86_64"),
        (OLD, "debian-amd64@7.3", PARALLEL, "kprobe-event", "only the lab's BPF programs count in a map that"),
    ],
)
def test_why_a_kernel_or_a_probe_is_unsupported(
    qemu: str, kernel: str, options: list[str], probe: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(qemu_facts, "qemu_version", lambda: qemu)
    described = calls_experiment(**{**IN_TURNS_OF_TWO, "kernels": [kernel], "probes": [probe]})
    one = next(one for one in plan(described).cells if one.probe == probe)
    made = a_kernel(kernel, dict.fromkeys([*one.task.kind.needs, *options], "y"), release="7.3.4")
    assert (unsupported_reason(made, one) or "").startswith(reason)
    assert bool(unsupported_reason(made, one)) == bool(reason)


def in_turns(probe: str, handler: str, smp: int, moved: float, **changes: Any) -> CellRecord:
    found: dict[str, str | float] = {IN_TURNS: 1, MOVED: moved, CONTENDED: 2 * moved}
    found |= {MOVED_BY: f"adding {moved:g}"} if moved else {}
    return cell(probe, id=f"x{smp}/{probe}/{handler}", smp=smp, handler=handler, parameters=found, **changes)


RUN = run(
    *(
        one
        for smp in (1, 4)
        for handler, moved in (("count", 0), ("count-shared", float(smp > 1)))
        for one in (in_turns("none", handler, smp, 0), in_turns("kprobe", handler, smp, moved))
    )
)


def test_numbers_of_cpus_stand_side_by_side() -> None:
    lines = [" ".join(line.split()) for line in printed(RUN).splitlines()]
    assert "1 CPU 4 CPUs" in lines
    moved = lines[lines.index("lines that a call gets from other CPUs") :]
    assert moved[1:4] == ["baseline 0 0", "kprobes, count 0 0", "kprobes, count-shared 0 1"]
    assert "accesses of a call to contended lines" in moved
    text = " ".join(lines)
    assert "Lines that kprobes, count-shared gets on 4 CPUs, by who accesses them: adding 1." in text
    assert "On 4 CPUs a call with kprobes, count-shared gets 1 line from other CPUs; kprobes, count 0." in text


def test_a_cell_without_a_number_stays_in_the_table() -> None:
    lost = failed("kprobe", "samples differ", id="x4/kprobe/count", smp=4, parameters={IN_TURNS: 1})
    text = printed(run(in_turns("none", "noop", 1, 0), in_turns("kprobe", "noop", 1, 0), lost))
    assert "failed [1]" in text
    assert "samples differ" in text


def test_a_chart_has_a_curve_for_each_row() -> None:
    (chart,) = curve_charts(RUN).values()
    first, second = chart.panes
    assert [(curve.name, list(curve.points)) for curve in first.curves] == [
        ("kprobes, count", [(1, 0), (4, 0)]),
        ("kprobes, count-shared", [(1, 0), (4, 1)]),
    ]
    assert list(second.curves[1].points) == [(1, 0), (4, 2)]
