# SPDX-License-Identifier: GPL-2.0-only
"""Is what the image says of a function's instructions so in the running kernel, and does a guest answer the rest?"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import CommandLine
from djprobe_trial import Trial, insert, trial_module
from module_maker import ModuleMaker

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import KPROBES_LIST
from orchestrator.probes.placement import DECIDED_AT_BOOT, TECHNIQUES, FunctionPlaces, ProbePlace, answered, places_of
from orchestrator.results.contract import RunRecord

EACH = """\
name: each
kernels: [debian-686]
machines: [{cpu: pentium4}]
points: [ksys_read+*]
probes: [none, kprobe, kprobe-ftrace, djprobe]
benchmark: {name: syscall, call: read, arguments: [0, {buffer: 16}, 16], calls: 100, repeats: 2}
"""

pytestmark = pytest.mark.qemu

MACHINES = {
    "lab-i386-up": "pentium4",
    "debian-686": "pentium4",
    "debian-amd64": "xeon-e5410",
    "debian-amd64@6.12": "xeon-e5410",
    "debian-amd64@7.3": "xeon-e5410",
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
FUNCTIONS = ("ksys_read", "schedule", "__get_user_4", "get_kprobe", "do_syscall_64", "do_int80_syscall_32", "kfree")
"""With calls, loops and a WARN; an access that may fault; those that are not to be probed; a static branch."""
CALL, JUMPS, BUG = 0xE8, range(0x70, 0x80), b"\x0f\x0b"
BRANCHES = (bytes.fromhex("0f1f440000"), bytes.fromhex("3e8d742600"))


def functions(kernel: Kernel) -> Iterator[FunctionPlaces]:
    """What the image says of those functions that the kernel has."""
    code = kernel.code
    assert code is not None
    return filter(None, (places_of(code, kernel.config, symbol) for symbol in FUNCTIONS))


def unsaid(function: FunctionPlaces) -> FunctionPlaces:
    """The function as if its image said nothing, so that the guest alone answers."""
    return replace(
        function,
        places=[replace(place, verdicts=dict.fromkeys(TECHNIQUES, DECIDED_AT_BOOT)) for place in function.places],
    )


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_kprobes_do_at_each_instruction(
    kernel: str, shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    module = modules.rendered("places", {})
    said = list(functions(guest_kernel))
    assert {"ksys_read", "kfree"} <= {function_places.symbol for function_places in said}
    answers = {
        function_places.symbol: answered(shared_guest, module, unsaid(function_places)).places
        for function_places in said
    }
    for places in said:
        # Boot patches some calls into other instructions (alternatives): the kernel answers for those.
        answers[places.symbol] = [
            replace(place, code=shared_guest.read_memory(places.address + place.offset, len(place.code)))
            for place in answers[places.symbol]
        ]
    # What the image refuses, the kernel does: it takes none, puts it elsewhere, or leaves it to the tracer.
    wrong = [
        f"{function.symbol}+{before.offset:#x}: {before.verdicts['kprobe'].reason}, and the kernel takes one"
        for function in said
        for before, after in zip(function.places, answers[function.symbol], strict=True)
        if before.verdicts["kprobe"].is_possible is False and after.verdicts["kprobe"].is_possible
    ]
    assert not wrong, "\n".join(wrong)
    assert {place.verdicts["kprobe"].is_possible for function in said for place in function.places} == {None, False}
    check_rules(answers)
    seen = {place.step for places in answers.values() for place in places}
    # Only a kernel that is not preemptible boosts, and only one whose compiler keeps to an order has no other step.
    assert ("boosted" in seen) is (kernel == "lab-i386-up")
    assert {"emulated", "single-stepped", None} <= seen
    assert shared_guest.get(KPROBES_LIST) == b""


def check_rules(answers: dict[str, Sequence[ProbePlace]]) -> None:
    """What each kernel makes of calls, jumps, BUGs, static branches, and of functions that take no jump or kprobe."""
    branches = 0
    for symbol, places in answers.items():
        for place in places:
            takes, jump = place.verdicts["kprobe"], place.verdicts["optimised"]
            if place.code[0] == CALL or place.code[0] in JUMPS:
                assert place.step == "emulated" or not takes.is_possible or place.step == "boosted"
                assert not jump.is_possible or place.step == "boosted"
            if place.code == BUG:
                assert takes.is_possible is False
            branches += place.code in BRANCHES and takes.is_possible is False and not place.is_entry
            assert takes.is_possible or not jump.is_possible
        if symbol in ("get_kprobe", "do_syscall_64", "do_int80_syscall_32"):
            assert {probe_place.verdicts["kprobe"].is_possible for probe_place in places} == {False}
        if symbol == "__get_user_4":
            assert {probe_place.verdicts["optimised"].is_possible for probe_place in places} == {False}
    optimised = {answer.verdicts["optimised"].is_possible for answer in answers["ksys_read"]}
    assert optimised == {True, False}
    assert branches


@pytest.mark.parametrize("kernel", KERNELS)
def test_what_djprobes_do_at_functions(
    kernel: str, shared_guest: Guest, guest_kernel: Kernel, modules: ModuleMaker
) -> None:
    insert(shared_guest, trial_module(modules))
    trial = Trial(shared_guest)
    said = {
        function.symbol: {place.verdicts["djprobe"].is_possible for place in function.places}
        for function in functions(guest_kernel)
    }
    refused = {symbol: trial.refusal(symbol) for symbol in said}
    shared_guest.succeed(["rmmod", "djprobe_trial"])
    # The image refuses whole functions; of the others the module refuses some, with its own words.
    assert not {symbol for symbol, why in refused.items() if not why and None not in said[symbol]}
    assert not refused["ksys_read"]
    assert refused["__get_user_4"]


@pytest.mark.kernels("debian-686")
@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        ("vfs_raed", "it has no function vfs_raed of its own; did you mean vfs_read or"),
        ("start_kernel", "start_kernel is __init"),
        ("name_show", "functions name_show ("),
        ("vfs_read+0x5", "expected a kernel function"),
    ],
)
def test_places_outside_functions_are_refused(tmp_path: Path, function: str, sentence: str) -> None:
    done = CommandLine(tmp_path).run("disasm", "debian-686", function)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.nightly("on the command line: ten seconds; what it prints is tested without a guest")
@pytest.mark.kernels("debian-686")
def test_a_function_in_each_form(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    (found,) = json.loads(command.run("disasm", "debian-686", "ksys_read", "--format", "json").stdout)
    assert [one["text"] for one in found["instructions"][:2]] == ["call __fentry__", "push ebp"]
    assert found["instructions"][1]["probes"]["kprobe"] == {"possible": True, "reason": None}
    assert found["instructions"][1]["probes"]["djprobe"]["possible"] is None
    assert [one["step"] for one in found["instructions"][:2]] == [None, "single-stepped"]
    table = command.run("disasm", "debian-686", "__ia32_sys_getpid").stdout  # a short one
    assert "call __fentry__" in table
    assert "Answered by a guest of this kernel on pentium4." in table
    unasked = command.run("disasm", "debian-686", "ksys_read", "--no-guest", "--format", "markdown").stdout
    assert re.search(r"\| \+0x5 +55 +push ebp \| \? ", unasked)
    assert "No guest was asked" in unasked
    wrong = command.run("disasm", "debian-686", "ksys_read", "--cpu", "xeon-e5411")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "unknown CPU 'xeon-e5411'" in wrong.stderr
    assert command.run("disasm", "debian-6868", "ksys_read").returncode == 2


@pytest.mark.kernels("debian-686")
def test_each_instruction_of_a_function_is_probed_or_says_why_not(tmp_path: Path) -> None:
    file = tmp_path / "each.yaml"
    file.write_text(EACH)
    command = CommandLine(tmp_path)
    # The entry with the function tracer's nop, and the first call.
    chosen = {
        "0x0": ["kprobe-ftrace"],
        "0x5": ["kprobe", "kprobe-ftrace", "djprobe"],
        "0x1f": ["kprobe"],
        "0xd0": ["kprobe"],
    }
    named = [f"point=ksys_read+{offset},probe={probe}" for offset, rows in chosen.items() for probe in rows]
    done = command.run("run", file, *(word for one in named for word in ("--only", one)))
    assert done.returncode == 0, done.stderr
    answer = command.run("report", "latest", "--format", "json")
    cells = RunRecord.model_validate_json(answer.stdout, strict=False).cells
    cell_by_pair = {(str(cell.parameters["at"]), cell.probe): cell for cell in cells}
    numbers = {key for key, cell in cell_by_pair.items() if cell.status == "ok"}
    assert {("ksys_read+0x0", "kprobe-ftrace"), ("ksys_read+0x5", "kprobe"), ("ksys_read+0x5", "djprobe")} <= numbers
    assert not {cell.status for cell in cells} - {"ok", "unsupported"}
    assert "emulate" in (cell_by_pair["ksys_read+0x1f", "kprobe"].reason or "")
    assert "site is at +0x0" in (cell_by_pair["ksys_read+0x5", "kprobe-ftrace"].reason or "")
    assert cell_by_pair["ksys_read+0xd0", "kprobe"].reason == "these calls do not execute it"
    printed = command.run("report", "latest").stdout
    assert "at each instruction of ksys_read in a call of" in " ".join(printed.split())
    # Once in the note below the table, which all cells share, and once in the summary.
    assert printed.count("the function tracer's site is at +0x0") == 2
