# SPDX-License-Identifier: GPL-2.0-only
"""Can each probe do what List 15 of the djprobe document grants it, and nothing that it does not?"""

from __future__ import annotations

import dataclasses

import pytest
from elsewhere import ELSEWHERE
from experiment_boot import artifacts_of, boot_of, call_setup, measured_call, prepared_for
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import render
from orchestrator.benchmarks.calls.benchmarks import call_probe, capability_grants
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.experiment.plan import Boot
from orchestrator.paths import data_dir
from orchestrator.results.contract import CellRecord
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.ready_guest import ReadyGuest

CONFIG = data_dir("configs") / "djprobe-2005-list15.yaml"
SAMPLED_FUNCTIONS = 50
"""SAMPLE_FUNCTIONS of ``kmods/capability/sample.h``."""
MACHINES = {"debian-686": "pentium4", "lab-i386-up": "athlon", "debian-amd64": "xeon-e5410"}
EVERY_DAY = "lab-i386-up"


def marks(kernel: str) -> list[pytest.MarkDecorator]:
    """What the tests on a kernel are marked with."""
    guest = pytest.mark.guest(kernel=kernel, cpu=MACHINES[kernel], timing="instructions")
    return [guest] if kernel == EVERY_DAY else [guest, ELSEWHERE]


@pytest.fixture(params=[pytest.param(name, marks=marks(name)) for name in MACHINES])
def boot(request: pytest.FixtureRequest) -> Boot:
    """The experiment's boot on one of the kernels."""
    kernel = str(request.param)
    machine = f"machines.0.cpu={MACHINES[kernel]}"
    return boot_of(CONFIG, f"kernels=[{kernel}]", machine)


def test_the_experiment_has_all_of_the_list(boot: Boot) -> None:
    assert {cell.probe for cell in boot.cells} == {"none", *capability_grants()}


def test_each_probe_has_its_published_capabilities(boot: Boot, ready: ReadyGuest, workshop: BuildContext) -> None:
    ready = prepared_for(ready, workshop, boot)
    outcomes: dict[str, CellRecord | str] = {}
    for cell in boot.cells:
        try:
            outcomes[cell.probe] = measured_call(ready, cell)
        except UnsupportedError as error:
            outcomes[cell.probe] = str(error)
    for name, (*_, grant) in capability_grants().items():
        outcome = outcomes[name]
        if grant.shown == "refusal":
            assert isinstance(outcome, str), name
            assert outcome.endswith("not a function entry (the instruction after endbr and the ftrace nop)")
            continue
        assert isinstance(outcome, CellRecord), (name, outcome)
        assert outcome.evidence is not None
        assert outcome.evidence.hits == outcome.evidence.calls == 1000, name
        if grant.int3 is not None:
            assert outcome.evidence.int3 == 1000 * grant.int3, name
        assert (grant.note or "") in " ".join(outcome.notes)
    inside = outcomes["kprobe.anywhere"]
    assert isinstance(inside, CellRecord)
    taken, places = inside.parameters["places_taken"], inside.parameters["places"]
    assert isinstance(taken, int)
    assert isinstance(places, int)
    assert 20 < taken <= places
    sampled = [inside.parameters[name] for name in ("sampled_taken", "sampled", "sampled_functions")]
    assert all(isinstance(count, int) for count in sampled)
    taken, places, functions = map(int, sampled)
    assert functions == SAMPLED_FUNCTIONS
    # "Almost anywhere": some functions are the kernel's own entry code, its kprobes or its patched places.
    assert 0.8 * places < taken < places
    ready.guest.check_console()


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
@pytest.mark.parametrize("name", ["kprobe.post-exec", "djprobe.probe-and-registers"])
def test_a_handler_that_sees_something_else_counts_nothing(
    ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker, name: str
) -> None:
    """A system call's function is called with the user's registers; the handler of an inner one detects that."""
    boot = boot_of(CONFIG, "kernels=[lab-i386-up]", f"probes=[{name}]")
    cell, kind = boot.cells[-1], call_probe(name)
    setup, _ = call_setup(artifacts_of(workshop, boot), cell)
    values: dict[str, str | int] = {
        "symbol": "ktime_get_real_ts64",
        "offset": 0,
        "capability": (kind.capability or "").replace("-", "_"),
    }
    module = modules.rendered(kind.template or "", values)
    wrong = Ready(dataclasses.replace(setup, symbol="ktime_get_real_ts64", offset=0, module=module))
    if name == "kprobe.post-exec":
        assert measure_call(ready, cell, wrong).status == "ok"  # it is true of any function
        return
    with pytest.raises(EvidenceError, match="the probe's handler ran 0 times"):
        measure_call(ready, cell, wrong)


SAVES_WHAT_IT_DID_NOT = {
    "djprobe.other-registers": ("djprobe_stub.S", "\tleal -4*4(%esp), %esp", "\t.rept 4\n\tpushl $0\n\t.endr"),
    "djprobe.probe-and-registers": ("djprobe_stub.S", "\tpushl %edx\n", "\tpushl $0\n"),
    "kprobe.probe-and-registers": ("known_call_code.S", "\tmovl $KNOWN_VALUE(6), %ebp", "\tmovl $0, %ebp"),
}
"""By capability, a line of a source on i386, and what changes the registers that a handler gets to see."""


@pytest.mark.guest(kernel="lab-i386-up", timing="instructions")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(
            name,
            marks=[]
            if name == "djprobe.probe-and-registers"
            else pytest.mark.nightly("another module that is wrong, which has to be compiled"),
        )
        for name in sorted(SAVES_WHAT_IT_DID_NOT)
    ],
)
def test_wrong_registers_are_detected(
    ready: ReadyGuest, workshop: BuildContext, modules: ModuleMaker, name: str
) -> None:
    boot = boot_of(CONFIG, "kernels=[lab-i386-up]", f"probes=[{name}]")
    cell, kind = boot.cells[-1], call_probe(name)
    setup, _ = call_setup(artifacts_of(workshop, boot), cell)
    capability = (kind.capability or "").replace("-", "_")
    source = render(kind.template or "", {"symbol": setup.symbol, "offset": setup.offset, "capability": capability})
    file, line, instead = SAVES_WHAT_IT_DID_NOT[name]
    assert source.files[file].count(line) == 1
    files = {**source.files, file: source.files[file].replace(line, instead)}
    changed = dataclasses.replace(setup, module=modules.built(dataclasses.replace(source, files=files)))
    with pytest.raises(EvidenceError, match="the probe's handler ran 0 times"):
        measure_call(ready, cell, Ready(changed))
