# SPDX-License-Identifier: GPL-2.0-only
"""Do whole programs, in a system that a guest has in memory, take the same time to the nanosecond in every boot?"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from module_maker import ModuleMaker

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.modules import Module
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.artifacts.unattended_initramfs import OUTPUT, STATUS, write_work
from orchestrator.benchmarks.system.work import (
    REPORT,
    REPORT_AFTER,
    SystemFigures,
    SystemTask,
    SystemWork,
    system_inputs,
    system_work,
)
from orchestrator.benchmarks.system.workloads import system_workloads
from orchestrator.catalog.kernels import kernel
from orchestrator.errors import EvidenceError
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.probes import recorder
from orchestrator.run.guest_checks import check_clocksource
from orchestrator.run.machines import machine_for

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-smp")]

KERNEL = "lab-i386-smp"
SILENCE_LIMIT = 600.0
FLOOD = SystemTask("ping-flood", packets=400, warm=2)
BUILD = SystemTask("kernel-build", scope="sample", warm=1)


@dataclass(frozen=True)
class Done:
    """The outcome of a guest's work: the figures, if any, its output, and its module's reports."""

    figures: SystemFigures | None
    output: str
    reports: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class Lab:
    """Has guests do work, one after the other."""

    context: BuildContext
    folder: Path

    def work(self, task: SystemTask, name: str = KERNEL, module: Module | None = None) -> SystemWork:
        built = ready_kernel(self.context, kernel(name))
        inputs = system_inputs(self.context, built, task)
        return system_work(self.context, built, task, inputs, module, lambda guest: None)

    def done(self, work: SystemWork, name: str = KERNEL, model: str = "pentium4", *, reports: bool = False) -> Done:
        built = ready_kernel(self.context, kernel(name))
        machine = machine_for(
            self.context, built, GuestSpec(kernel=name, cpu=model, memory=f"{work.memory_mib}M", timing="instructions")
        )
        whole = self.folder / "initramfs"
        with whole.open("wb") as target:
            write_work(target, machine.initramfs, work.script, work.settings, work.files)
        guest = Guest(replace(machine, initramfs=whole), self.folder)
        try:
            guest.boot(SILENCE_LIMIT, lambda line: None)
            output = guest.get(OUTPUT).decode("ascii", errors="replace")
            if guest.get(STATUS) != b"0":
                return Done(None, output)
            guest.check_console()
            check_clocksource(guest)
            reported = tuple(guest.get(file) for file in (REPORT, REPORT_AFTER)) if reports else ()
            return Done(work.read(output), output, reported)
        finally:
            guest.kill()
            whole.unlink()

    def figures(self, task: SystemTask, name: str = KERNEL, model: str = "pentium4") -> SystemFigures:
        done = self.done(self.work(task, name), name, model)
        assert done.figures is not None, done.output
        return done.figures


@pytest.fixture
def lab(workshop: BuildContext, tmp_path: Path) -> Lab:
    return Lab(workshop, tmp_path)


@pytest.mark.nightly("compiles in two boots, three minutes; floods of pings show the same every day")
@pytest.mark.prepared_build
def test_builds_of_a_kernel_agree_to_the_nanosecond(lab: Lab) -> None:
    figures = lab.figures(BUILD)
    assert lab.figures(BUILD) == figures
    assert figures.done == len(system_workloads().scopes["sample"].targets)
    (warm,) = figures.warm
    assert figures.cold.real > warm.real > warm.user > 1e9
    assert figures.cold.major > 100
    assert warm.major == 0


@pytest.mark.prepared_build
def test_a_failed_build_is_reported_with_make_s_last_lines(lab: Lab) -> None:
    work = lab.work(BUILD)
    broken = replace(work, settings={**work.settings, "targets": "lib/no_such_thing.o"})
    done = lab.done(broken)
    assert done.figures is None
    lines = done.output.splitlines()
    assert lines[:2] == ["cold", "macrobench: the program ended with status 2"]
    assert "make[3]: *** No rule to make target 'lib/no_such_thing.o'.  Stop." in lines
    assert lines[-1].startswith("make: *** ")


def test_floods_of_pings_agree_to_the_nanosecond(lab: Lab) -> None:
    figures = lab.figures(FLOOD)
    assert lab.figures(FLOOD) == figures
    assert figures.done == 400
    assert figures.facts["rtt_min_ns"] == figures.facts["rtt_avg_ns"] == 9000
    other_figures = lab.figures(replace(FLOOD, seed=2, phase_us=7123))
    assert other_figures != figures
    for run, another in zip(other_figures.warm, figures.warm, strict=True):
        assert run.real == pytest.approx(another.real, rel=0.01)


def test_a_module_is_there_for_the_runs_and_reports_twice(
    lab: Lab, workshop: BuildContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = ready_kernel(workshop, kernel(KERNEL))
    module = ModuleMaker(workshop, built).rogue("report_trial")
    parameters = f"/sys/module/{module.name}/parameters"
    task = replace(FLOOD, probe="kprobe")
    monkeypatch.setattr(recorder, "REPORT", f"{parameters}/report")
    monkeypatch.setattr(recorder, "STOP", f"{parameters}/stop")
    done = lab.done(lab.work(task, module=module), reports=True)
    assert done.figures is not None, done.output
    assert done.reports == (b"at work\n", b"stopped\n")
    monkeypatch.setattr(recorder, "STOP", f"{parameters}/no_such_parameter")
    refused = lab.done(lab.work(task, module=module))
    assert refused.figures is None
    assert refused.output.splitlines()[-1] == "the module does not stop"


def test_a_command_is_taken_word_for_word(lab: Lab) -> None:
    words = ("printf", "%s|", "a  b", "*", "$HOME `id`", "'", "\n")
    figures = lab.figures(SystemTask("command", command=words, warm=1))
    printed = b"a  b|*|$HOME `id`|'|\n|"
    assert figures.facts == {"output_bytes": len(printed)}
    assert figures.digest == hashlib.sha256(printed).hexdigest()


@pytest.mark.parametrize(
    ("command", "last"),
    [
        (("sh", "-c", "echo half; echo no luck >&2; exit 3"), "no luck"),
        (("no-such-program",), "macrobench: cannot execute no-such-program"),
    ],
)
def test_a_failed_command_is_reported_with_its_last_line(lab: Lab, command: tuple[str, ...], last: str) -> None:
    done = lab.done(lab.work(SystemTask("command", command=command)))
    assert done.figures is None
    assert done.output.splitlines()[-1] == last
    assert any(line.startswith("macrobench: the program ended with status ") for line in done.output.splitlines())


def test_a_command_that_never_prints_the_same_is_no_result(lab: Lab) -> None:
    task = SystemTask("command", command=("cat", "/proc/sys/kernel/random/uuid"), warm=1)
    with pytest.raises(EvidenceError, match="the runs differ in what was printed"):
        lab.figures(task)


def test_a_kernel_of_debian_s_finds_its_drivers(lab: Lab) -> None:
    figures = lab.figures(replace(FLOOD, packets=2000), "debian-686")
    assert figures.done == 2000
    assert figures.warm[1].real == pytest.approx(figures.warm[0].real, rel=0.02)


@pytest.mark.kernels("lab-x86_64-smp")
def test_a_64_bit_system_is_one(lab: Lab) -> None:
    task = SystemTask("command", command=("uname", "-m"), warm=1)
    figures = lab.figures(task, "lab-x86_64-smp", "xeon-e5410")
    assert figures.digest == hashlib.sha256(b"x86_64\n").hexdigest()
