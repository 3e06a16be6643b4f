# SPDX-License-Identifier: GPL-2.0-only
"""Where can a djprobe be, what does it leave as it was, and what is it refused for?"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest
from djprobe_trial import Trial, insert, trial_module
from elsewhere import ELSEWHERE
from module_maker import ModuleMaker

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import CommandFailed, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.evidence import check_taint
from orchestrator.probes.symbols import ModuleMemory, Symbols

SHAPE = "djprobe_shape_"
MANY = 64
"""Detours that one module has."""

_MACHINES = {"lab-i386-up": "pentium4", "debian-686": "pentium4", "debian-amd64": "xeon-e5410"}
FTRACED = {"debian-686", "debian-amd64"}
"""Kernels whose C functions begin with the function tracer's nop."""


def on(every_day: str, *every_night: str) -> list[object]:
    """Parameters of a fixture: each kernel, with the machine that it runs on."""
    return [
        pytest.param(
            name,
            marks=[
                pytest.mark.guest(kernel=name, cpu=_MACHINES[name], timing="tcg"),
                *([] if name == every_day else [ELSEWHERE]),
            ],
        )
        for name in (every_day, *every_night)
    ]


@pytest.fixture(params=on(*_MACHINES))
def kernel(request: pytest.FixtureRequest) -> str:
    """The name of the guest's kernel."""
    return str(request.param)


@pytest.fixture
def trial(kernel: str, shared_guest: Guest, modules: ModuleMaker) -> Iterator[Trial]:
    """The trial module, loaded; unloaded at the end, when the kernel must have had nothing to complain of."""
    mark = shared_guest.console.length()
    insert(shared_guest, trial_module(modules))
    yield Trial(shared_guest)
    shared_guest.succeed(["rmmod", "djprobe_trial"])
    shared_guest.check_console(mark)
    check_taint(int(shared_guest.get("/proc/sys/kernel/tainted")))


# --- good places ----------------------------------------------------------------------------------


def test_probed_functions_do_what_they_did(trial: Trial) -> None:
    arguments = {"five": 0, "one_four": 35, "relative": 0, "stack": 0, "flags": 0, "loop": 5}
    for shape, argument in arguments.items():
        symbol = SHAPE + shape
        expected = trial.call(symbol, argument)[0]
        address = trial.put(0, symbol)
        original = trial.guest.read_memory(address, 1)
        assert original == b"\xe9", shape
        assert trial.call(symbol, argument) == (expected, [0] * (5 if shape == "loop" else 1)), shape
        trial.take(0)
        assert trial.guest.read_memory(address, 1) != b"\xe9", shape
        assert trial.call(symbol, argument) == (expected, []), shape


def test_the_shapes_detect_errors(trial: Trial) -> None:
    """What they return without a probe: else the test above would show nothing."""
    found = {shape: trial.call(SHAPE + shape, argument)[0] for shape, argument in (("one_four", 35), ("loop", 5))}
    assert found == {"one_four": 42, "loop": 0x50000}
    assert trial.call(SHAPE + "flags")[0] == 1
    assert trial.call(SHAPE + "relative")[0] == 0x20050713


def test_what_a_handler_writes_into_a_register_the_function_sees(trial: Trial) -> None:
    trial.write("add", "5")
    trial.put(0, SHAPE + "argument")
    assert trial.call(SHAPE + "argument", 1)[0] == 0x1006


def test_a_place_is_named_by_its_address(trial: Trial) -> None:
    address = trial.put(0, SHAPE + "five")
    trial.take(0)
    assert trial.put(1, "", address=address) == address
    assert trial.call(SHAPE + "five") == (0x2005, [1])


@pytest.mark.parametrize("kernel", on("debian-amd64", "debian-686"), indirect=True)
def test_a_symbol_means_the_entry_behind_the_function_tracer_s_nop(trial: Trial, guest_kernel: Kernel) -> None:
    symbol = "vfs_read"
    place = Symbols.of(trial.guest).address(symbol) + guest_kernel.spec.entry_offset
    original = trial.guest.read_memory(place, 16)
    assert trial.put(0, symbol) == place
    before = sum(trial.counts())
    assert sum(trial.counts()) > before
    trial.take(0)
    assert trial.guest.read_memory(place, 16) == original


def test_a_handler_sees_ip_and_orig_ax_as_an_optimised_kprobe_s(trial: Trial) -> None:
    """As optimized_callback() of arch/x86/kernel/kprobes/opt.c sets them: behind an int3, and no system call."""
    address = trial.put(0, SHAPE + "five")
    trial.put(1, SHAPE + "five")
    trial.call(SHAPE + "five")
    word = 1 << (64 if address >> 32 else 32)
    assert (int(trial.read("ip")), int(trial.read("orig_ax"))) == (address + 1, word - 1)


# --- several --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", on("lab-i386-up"), indirect=True)
def test_one_module_has_many_probes_and_no_more(trial: Trial) -> None:
    places = [trial.put(number, f"{SHAPE}many_{number}") for number in range(MANY)]
    assert trial.refusal(f"{SHAPE}many_{MANY}", number=MANY) == f"{SHAPE}many_{MANY}+0x0: no detour buffer is free"
    for number in range(MANY):
        assert trial.call(f"{SHAPE}many_{number}") == (number, [number])
    for number in range(MANY):
        trial.take(number)
    for number, place in enumerate(places):
        assert trial.guest.read_memory(place, 5) == b"\xb8" + number.to_bytes(4, "little")


def test_probes_at_one_address_are_hit_in_the_order_they_came(trial: Trial) -> None:
    for leaving in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        place, there = 0, []
        for number in range(3):
            place = trial.put(number, SHAPE + "five")
            there.append(number)
            assert trial.call(SHAPE + "five") == (0x2005, there)
        for number in leaving:
            assert trial.guest.read_memory(place, 1) == b"\xe9"
            trial.take(number)
            there.remove(number)
            assert trial.call(SHAPE + "five") == (0x2005, there)
        assert trial.guest.read_memory(place, 5) == b"\xb8\x05\x20\x00\x00"


def test_another_module_at_the_same_address_is_refused(trial: Trial, modules: ModuleMaker) -> None:
    insert(trial.guest, trial_module(modules, "djprobe_rival"))
    rival = Trial(trial.guest, "djprobe_rival")
    try:
        trial.put(0, f"djprobe_trial:{SHAPE}five")
        refusal = rival.refusal(f"djprobe_trial:{SHAPE}five")
        assert refusal == f"djprobe_trial:{SHAPE}five+0x0: another probe in the function"
        trial.take(0)

        # While it is probed by another, a module stays; and a module that probes itself can go.
        rival.put(0, f"djprobe_trial:{SHAPE}five")
        assert trial.call(f"djprobe_trial:{SHAPE}five") == (0x2005, [])
        assert rival.counts() == [1]
        with pytest.raises(CommandFailed):
            trial.guest.succeed(["rmmod", "djprobe_trial"])
        rival.take(0)
        trial.put(0, f"djprobe_trial:{SHAPE}five")
    finally:
        trial.guest.succeed(["rmmod", "djprobe_rival"])


def test_a_kprobe_that_joins_is_hit_when_the_djprobe_has_gone(trial: Trial, modules: ModuleMaker) -> None:
    place = trial.put(0, SHAPE + "five")
    insert(trial.guest, modules.rogue("kprobe_trial"), [f"symbol={SHAPE}five"])
    try:
        joined = Trial(trial.guest, "kprobe_trial")
        assert trial.call(SHAPE + "five") == (0x2005, [0])
        assert joined.counts() == [0]
        trial.take(0)
        assert trial.guest.read_memory(place, 5) == b"\xcc\x05\x20\x00\x00"
        assert trial.call(SHAPE + "five") == (0x2005, [])
        assert joined.counts() == [1]
    finally:
        trial.guest.succeed(["rmmod", "kprobe_trial"])
    assert trial.guest.read_memory(place, 5) == b"\xb8\x05\x20\x00\x00"


def test_kprobes_in_what_the_jump_covers_are_refused(trial: Trial, modules: ModuleMaker) -> None:
    """Else the jump's removal would complete an instruction around another's int3: ``sub $0xcc, %esp``."""
    kprobe = modules.rogue("kprobe_trial")
    place = trial.put(0, SHAPE + "frame")
    trial.take(0)
    original = trial.guest.read_memory(place, 16)
    trial.put(0, SHAPE + "frame")
    for offset in range(1, original.index(b"\xb8")):
        with pytest.raises(CommandFailed):
            insert(trial.guest, kprobe, [f"symbol={SHAPE}frame", f"offset={offset}"])
    trial.take(0)
    assert trial.guest.read_memory(place, 16) == original
    assert trial.call(SHAPE + "frame") == (0x2006, [])
    # Instructions take kprobes again.
    insert(trial.guest, kprobe, [f"symbol={SHAPE}frame", "offset=1"])
    trial.guest.succeed(["rmmod", "kprobe_trial"])


def test_the_instructions_behind_a_jump_take_kprobes(trial: Trial, modules: ModuleMaker) -> None:
    """Kprobes decode the function from its beginning: bytes 18 b8 ... of a frame on i386 are no instruction's first."""
    place = trial.put(0, SHAPE + "frame")
    trial.take(0)
    original = trial.guest.read_memory(place, 16)
    trial.put(0, SHAPE + "frame")
    behind = original.index(b"\xb8")
    insert(trial.guest, modules.rogue("kprobe_trial"), [f"symbol={SHAPE}frame", f"offset={behind}"])
    try:
        assert trial.call(SHAPE + "frame") == (0x2006, [0])
        assert Trial(trial.guest, "kprobe_trial").counts() == [1]
    finally:
        trial.guest.succeed(["rmmod", "kprobe_trial"])
    trial.take(0)
    assert trial.guest.read_memory(place, 16) == original
    assert trial.call(SHAPE + "frame") == (0x2006, [])


# --- what happens while a jump comes or goes --------------------------------------------------------

KPROBES_ENABLED = "/sys/kernel/debug/kprobes/enabled"


def test_a_kprobe_that_comes_before_the_copy_is_refused(trial: Trial, modules: ModuleMaker) -> None:
    module = modules.rogue("kprobe_trial")
    trial.guest.put(module.file, "/tmp/kprobe_trial.ko")
    trial.meanwhile("copy", f"insmod /tmp/kprobe_trial.ko symbol={SHAPE}one_four")
    assert trial.refusal(SHAPE + "one_four") == f"{SHAPE}one_four+0x0: another probe came meanwhile"
    joined = Trial(trial.guest, "kprobe_trial")
    assert trial.call(SHAPE + "one_four", 35) == (42, [])
    assert joined.counts() == [1]
    trial.guest.succeed(["rmmod", "kprobe_trial"])
    trial.put(0, SHAPE + "one_four")
    assert trial.call(SHAPE + "one_four", 35) == (42, [0])


def test_a_kprobe_that_comes_before_the_copy_and_goes_is_refused_or_leaves_no_trace(
    trial: Trial, modules: ModuleMaker
) -> None:
    module = modules.rogue("kprobe_trial")
    trial.guest.put(module.file, "/tmp/kprobe_trial.ko")
    trial.meanwhile("copy", f"insmod /tmp/kprobe_trial.ko symbol={SHAPE}one_four; rmmod kprobe_trial")
    trial.put(0, SHAPE + "one_four")
    assert trial.call(SHAPE + "one_four", 35) == (42, [0])


def test_only_one_of_two_modules_gets_the_place(trial: Trial, modules: ModuleMaker) -> None:
    insert(trial.guest, trial_module(modules, "djprobe_rival"))
    rival = Trial(trial.guest, "djprobe_rival")
    parameters = "/sys/module/djprobe_rival/parameters"
    symbol = f"djprobe_trial:{SHAPE}five"
    try:
        trial.meanwhile("copy", f"cd {parameters}; echo {symbol} > symbol; echo 0 > put")
        assert trial.refusal(symbol) == f"{symbol}+0x0: another probe came meanwhile"
        assert trial.call(symbol) == (0x2005, [])
        assert rival.counts() == [1]
        rival.take(0)
        trial.put(0, symbol)
        assert trial.call(symbol) == (0x2005, [0])
    finally:
        trial.guest.succeed(["rmmod", "djprobe_rival"])


def test_a_kprobe_cannot_join_while_the_jump_is_made(trial: Trial, modules: ModuleMaker) -> None:
    module = modules.rogue("kprobe_trial")
    trial.guest.put(module.file, "/tmp/kprobe_trial.ko")
    trial.meanwhile("grace", f"insmod /tmp/kprobe_trial.ko symbol={SHAPE}five; echo $? > /tmp/joined")
    trial.put(0, SHAPE + "five")
    assert trial.guest.get("/tmp/joined") != b"0\n"
    assert trial.call(SHAPE + "five") == (0x2005, [0])


def test_kprobes_switched_off_and_on_meanwhile_let_no_cpu_pass(trial: Trial, modules: ModuleMaker) -> None:
    """One that came by would be inside the bytes that the jump is then written over."""
    insert(trial.guest, trial_module(modules, "djprobe_rival"))
    symbol = f"djprobe_trial:{SHAPE}five"
    call = f"echo {symbol} 0 > /sys/module/djprobe_rival/parameters/call"
    try:
        trial.meanwhile("grace", f"echo 0 > {KPROBES_ENABLED}; {call}; echo 1 > {KPROBES_ENABLED}")
        place = trial.put(0, symbol)
        assert sum(trial.counts()) == 1
        assert trial.guest.read_memory(place, 1) == b"\xe9"
        assert trial.call(symbol) == (0x2005, [0])
    finally:
        trial.guest.succeed(["rmmod", "djprobe_rival"])


def test_where_kprobes_are_switched_off_a_djprobe_is_refused_or_goes(trial: Trial) -> None:
    place = trial.put(0, SHAPE + "five")
    trial.guest.put(b"0", KPROBES_ENABLED)
    try:
        assert trial.call(SHAPE + "five") == (0x2005, [0])
        trial.take(0)
        assert trial.guest.read_memory(place, 5) == b"\xb8\x05\x20\x00\x00"
        assert trial.refusal(SHAPE + "five") == f"{SHAPE}five+0x0: kprobes are switched off"
        assert trial.guest.read_memory(place, 5) == b"\xb8\x05\x20\x00\x00"
        assert trial.call(SHAPE + "five") == (0x2005, [])
    finally:
        trial.guest.put(b"1", KPROBES_ENABLED)
    trial.put(0, SHAPE + "five")
    assert trial.call(SHAPE + "five") == (0x2005, [0])


# --- refusals -------------------------------------------------------------------------------------

NO_ENTRY = "not a function entry (the instruction after endbr and the ftrace nop)"
TOO_SHORT = "shorter than five bytes of whole instructions"


BAD_PLACES = {
    "short+0x0": TOO_SHORT,
    "runs_on+0x0": TOO_SHORT,
    "branch+0x0": "a branch into the bytes under the jump",
    "cold+0x0": "a branch into the bytes under the jump",
    "indirect+0x0": "an indirect jump in the function",
    "breakpoint+0x0": "a breakpoint in the function",
    "later_breakpoint+0x0": "a breakpoint in the function",
    "call+0x0": "an instruction under the jump cannot run out of line",
    "fixup+0x0": "an instruction of the function may fault and be fixed up",
    "blacklisted+0x0": "on the blacklist of kprobes",
    "five+0x5": NO_ENTRY,
    "five+0x1": NO_ENTRY,
    "nowhere+0x0": "no such symbol",
}


def test_bad_places_are_refused_with_their_reasons(trial: Trial) -> None:
    places = (place.split("+") for place in BAD_PLACES)
    said = [trial.refusal(SHAPE + shape, int(offset, 16)) for shape, offset in places]
    assert said == [f"{SHAPE}{place}: {reason}" for place, reason in BAD_PLACES.items()]


def test_a_refusal_has_an_errno(trial: Trial, modules: ModuleMaker) -> None:
    errors = {"nowhere": "no such file or directory", "short": "invalid argument", "frame": "device or resource busy"}
    insert(trial.guest, modules.rogue("kprobe_trial"), [f"symbol={SHAPE}frame", "offset=1"])
    try:
        for shape, error in errors.items():
            with pytest.raises(GuestError, match=error):
                trial.put(0, SHAPE + shape)
    finally:
        trial.guest.succeed(["rmmod", "kprobe_trial"])


def test_a_djprobe_is_registered_and_unregistered_once(trial: Trial) -> None:
    with pytest.raises(GuestError, match="no such file or directory"):
        trial.write("take_again", "0")
    place = trial.put(0, SHAPE + "five")
    with pytest.raises(GuestError, match="device or resource busy"):
        trial.write("put_again", "0")
    assert trial.call(SHAPE + "five") == (0x2005, [0])
    trial.take(0)
    with pytest.raises(GuestError, match="no such file or directory"):
        trial.write("take_again", "0")
    assert trial.guest.read_memory(place, 5) == b"\xb8\x05\x20\x00\x00"


def test_a_djprobe_without_a_handler_is_refused(trial: Trial) -> None:
    trial.guest.succeed(["dmesg", "-c"])
    with pytest.raises(GuestError, match="invalid argument"):
        trial.write("put_again", "65")
    assert "a djprobe without a handler" in trial.guest.succeed(["dmesg"]).text


def test_a_jump_label_under_the_jump_is_refused(trial: Trial, kernel: str) -> None:
    offset = 5 if kernel in FTRACED else 0
    assert trial.refusal(SHAPE + "label", offset) == f"{SHAPE}label+{offset:#x}: a jump label under the jump"


@pytest.mark.parametrize("kernel", on("debian-amd64"), indirect=True)
def test_a_static_call_under_the_jump_is_refused(trial: Trial) -> None:
    """Only x86_64 has them in the functions themselves."""
    assert trial.refusal(SHAPE + "static_call", 5) == f"{SHAPE}static_call+0x5: a static call under the jump"


@pytest.mark.nightly("boots a kernel of Debian's with another parameter: three seconds")
@pytest.mark.parametrize("kernel", on("debian-amd64"), indirect=True)
def test_an_alternative_under_the_jump_is_refused(
    kernel: str, shared_guest: Guest, modules: ModuleMaker, tmp_path: Path
) -> None:
    """Lock prefixes are patched where a kernel for several CPUs began with one, and another may come."""
    machine = dataclasses.replace(shared_guest.machine, smp_kernel=False, extra_parameters=("possible_cpus=2",))
    with Guest(machine, tmp_path) as lonely:
        insert(lonely, trial_module(modules))
        assert Trial(lonely).refusal(SHAPE + "lock") == f"{SHAPE}lock+0x0: an alternative under the jump"


def test_a_probed_function_is_refused(trial: Trial, modules: ModuleMaker) -> None:
    insert(trial.guest, modules.rogue("kprobe_trial"), [f"symbol={SHAPE}one_four", "offset=1"])
    try:
        assert trial.refusal(SHAPE + "one_four") == f"{SHAPE}one_four+0x0: another probe in the function"
    finally:
        trial.guest.succeed(["rmmod", "kprobe_trial"])


def test_data_is_refused(trial: Trial) -> None:
    data = ModuleMemory.of(trial.guest, "djprobe_trial").end - 16
    refusal = trial.refusal("", address=data)
    assert refusal.endswith(": not in the text of the kernel or a module")
    assert "djprobe" in refusal or f"{data:x}" in refusal


def test_refusals_leave_nothing_behind(trial: Trial) -> None:
    for shape in ("branch", "call", "short"):
        assert trial.refusal(SHAPE + shape)
    trial.put(0, SHAPE + "five")
    assert trial.call(SHAPE + "five") == (0x2005, [0])
