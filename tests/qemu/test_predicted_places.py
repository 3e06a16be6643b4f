# SPDX-License-Identifier: GPL-2.0-only
"""Is what is said of a function's instructions before a boot what the running kernel does with probes there?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from djprobe_trial import Trial, insert, trial_module
from module_maker import ModuleMaker

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module, ModuleSource
from orchestrator.guest.guest import Guest
from orchestrator.paths import data_dir
from orchestrator.probes.placement import FunctionPlaces, Means, function_places
from orchestrator.probes.point import wrong_point_reason
from orchestrator.results.contract import RunRecord

HERE = Path(__file__).parent
SCRIPT = HERE / "probe_places.sh"

EACH = """\
name: each
kernels: [debian-686]
machines: [{cpu: pentium4}]
points: [ksys_read+*]
probes: [none, kprobe, kprobe-ftrace, djprobe]
benchmark: {name: syscall, call: read, arguments: [0, {buffer: 16}, 16], calls: 500, repeats: 2}
"""

pytestmark = pytest.mark.qemu

MACHINES = {
    "lab-i386-up": "pentium4",
    "debian-686": "pentium4",
    "debian-amd64": "xeon-e5410",
    "debian-amd64@6.12": "xeon-e5410",
}
KERNELS = [
    pytest.param(
        name,
        marks=[
            pytest.mark.guest(kernel=name, cpu=cpu, timing="tcg"),
            *([] if name == "lab-i386-up" else [pytest.mark.nightly("a thousand places: half a minute a kernel")]),
        ],
    )
    for name, cpu in MACHINES.items()
]
FUNCTIONS = (
    *("ksys_read", "schedule", "__get_user_4", "get_kprobe", "do_syscall_64", "do_int80_syscall_32"),
    "kfree",
)
"""With calls, loops and a WARN; an access that may fault; those that are not to be probed; a static branch."""


def predicted(kernel: Kernel) -> Iterator[FunctionPlaces]:
    """What is said of those functions that the kernel has."""
    code = kernel.code
    assert code is not None
    for symbol in FUNCTIONS:
        if wrong_point_reason(code, symbol, None) is None:
            yield function_places(code, kernel.config, symbol, kernel.spec.version)


def trial_of_kprobes(modules: ModuleMaker) -> Module:
    """The module that puts a kprobe at one address after the other."""
    files = {"probe_places.c": HERE / "modules" / "probe_places.c", "step.h": data_dir("kmods") / "lib" / "step.h"}
    sources = {name: file.read_text() for name, file in files.items()}
    return modules.built(ModuleSource("probe_places", {**sources, "Kbuild": "obj-m := probe_places.o\n"}))


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_kprobes_do_at_each_instruction(
    kernel: str, shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    insert(shared_guest, trial_of_kprobes(modules))
    places = {
        function.address + place.offset: (f"{function.symbol}+{place.offset:#x}", place)
        for function in predicted(guest_kernel)
        for place in function.places
    }
    shared_guest.put("".join(f"{address:x}\n" for address in places).encode(), "/tmp/places")
    shared_guest.put(SCRIPT.read_bytes(), "/tmp/probe_places.sh")
    tried = shared_guest.succeed(["sh", "/tmp/probe_places.sh"], time_limit=600).text.splitlines()
    shared_guest.succeed(["rmmod", "probe_places"])
    assert len(tried) == len(places)
    wrong, seen = [], set()
    for line in tried:
        address, error, step, *flags = line.split()
        name, place = places[int(address, 16)]
        is_armed_by_int3 = error == "0" and "listed" in flags and "[FTRACE]" not in flags
        found: dict[Means, bool] = {"kprobe": is_armed_by_int3, "optimised": "[OPTIMIZED]" in flags}
        said = {means: place.verdicts[means] for means in found}
        seen |= {(means, said[means].is_possible) for means in found} | {place.step}
        wrong += [
            f"{name} {means}: {said[means]}, and the kernel has {line}"
            for means, is_possible in found.items()
            if said[means].is_possible not in (None, is_possible)
        ]
        if is_armed_by_int3 and place.step not in (None, step):
            wrong.append(f"{name}: {place.step}, and the kernel has {line}")
    assert not wrong, "\n".join(wrong)
    assert seen >= {(means, is_possible) for means in ("kprobe", "optimised") for is_possible in (True, False)}
    assert "emulated" in seen
    # Only a kernel that is not preemptible boosts.
    assert ("boosted" in seen) is (kernel == "lab-i386-up")


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_djprobes_do_at_functions(
    kernel: str, shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    insert(shared_guest, trial_module(modules))
    trial = Trial(shared_guest)
    said = {
        one.symbol: {place.verdicts["djprobe"].is_possible for place in one.places} for one in predicted(guest_kernel)
    }
    refused = {symbol: trial.refusal(symbol) for symbol, found in said.items() if None not in found}
    shared_guest.succeed(["rmmod", "djprobe_trial"])
    assert {symbol: True in said[symbol] for symbol in refused} == {one: not why for one, why in refused.items()}
    assert len({bool(why) for why in refused.values()}) == 2


@pytest.mark.kernels("debian-686")
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("vfs_raed", "it has no function vfs_raed of its own; did you mean vfs_read or"),
        ("start_kernel", "start_kernel is __init"),
        ("name_show", "functions name_show ("),
        ("vfs_read+0x6000..0x7000", "no instruction of vfs_read begins between +0x6000 and +0x7000"),
    ],
)
def test_what_is_no_function(tmp_path: Path, function: str, sentence: str) -> None:
    done = CommandLine(tmp_path).run("disasm", "debian-686", function)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.kernels("debian-686")
def test_a_function_in_each_form(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    (found,) = json.loads(command.run("disasm", "debian-686", "ksys_read+0..0x5", "--format", "json").stdout)
    assert [one["text"] for one in found["instructions"]] == ["call __fentry__", "push ebp"]
    assert found["instructions"][1]["probes"]["djprobe"] == {"possible": True, "reason": None}
    table = command.run("disasm", "debian-686", "ksys_read+0..0x5").stdout
    assert "call __fentry__" in table
    assert "Predicted from the kernel's image" in table
    assert (
        "| +0x5  55          push ebp |"
        in command.run("disasm", "debian-686", "ksys_read+0..0x5", "--format", "markdown").stdout
    )
    assert command.run("disasm", "debian-6868", "ksys_read").returncode == 2


@pytest.mark.kernels("debian-686")
def test_each_instruction_of_a_function_is_probed_or_says_why_not(tmp_path: Path) -> None:
    file = tmp_path / "each.yaml"
    file.write_text(EACH)
    command = CommandLine(tmp_path)
    # The entry with the function tracer's nop, and the first call.
    chosen = [f"point=ksys_read+{offset}" for offset in ("0x0", "0x5", "0x1f", "0xd0")]
    done = command.run("run", file, *(word for one in chosen for word in ("--only", one)))
    assert done.returncode == 0, done.stderr
    answer = command.run("report", "latest", "--format", "json")
    cells = RunRecord.model_validate_json(answer.stdout, strict=False).cells
    found = {(str(cell.parameters["at"]), cell.probe): cell for cell in cells}
    numbers = {key for key, cell in found.items() if cell.status == "ok"}
    assert {("ksys_read+0x0", "kprobe-ftrace"), ("ksys_read+0x5", "kprobe"), ("ksys_read+0x5", "djprobe")} <= numbers
    assert not {cell.status for cell in cells} - {"ok", "unsupported"}
    assert "emulate" in (found["ksys_read+0x1f", "kprobe"].reason or "")
    assert "site is at +0x0" in (found["ksys_read+0x5", "kprobe-ftrace"].reason or "")
    assert found["ksys_read+0xd0", "kprobe"].reason == "these calls do not execute it"
    printed = command.run("report", "latest").stdout
    assert "at each instruction of ksys_read in a call of" in " ".join(printed.split())
    # Once in the note below the table, which all cells share, and once in the summary.
    assert printed.count("the function tracer's site is at +0x0") == 2
