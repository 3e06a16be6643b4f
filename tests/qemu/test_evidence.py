# SPDX-License-Identifier: GPL-2.0-only
"""Is every way to measure something else than what was meant found out? Each is provoked in a real guest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from experiment_boot import boot_of_calls
from function_tracer import traced_function
from gettimeofday import gettimeofday
from module_maker import ModuleMaker

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.measurement import measure_call
from orchestrator.benchmarks.calls.preparation import CallSetup
from orchestrator.catalog.probes import Handler, probes
from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import module_attached
from orchestrator.probes.evidence import check_armed, check_same, check_taint, check_untouched, observe
from orchestrator.probes.point import ProbePoint, find_entry, find_place
from orchestrator.run.benchmark_kind import Ready
from orchestrator.run.ready_guest import ReadyGuest

pytestmark = pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="instructions")

PROBED = "__ia32_sys_gettimeofday"
UNCALLED = "__ia32_sys_sethostname"
OFFSET = 5
CALLS = gettimeofday("i386")
OPTIMISER_ROUNDS = 400
"""Of 50 ms of the guest's time each: the optimiser waits 50 ms, and then for the other tasks to be scheduled."""
OPTIMISATION = "/proc/sys/debug/kprobes-optimization"
CLOCKSOURCE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
TRACING = "/sys/kernel/tracing"
KPROBE_EVENTS = f"{TRACING}/kprobe_events"


@pytest.fixture
def point(ready: ReadyGuest) -> ProbePoint:
    return find_entry(ready.guest, ready.symbols, PROBED, OFFSET)


def kprobe_cell(probe: str = "kprobe", handler: Handler = "noop") -> CallCell:
    boot = boot_of_calls(
        kernels=["debian-686"],
        machines=[{"cpu": "pentium4"}],
        probes=[probe],
        handlers=[handler],
        benchmark={"name": "gtodbench", "calls": 1000, "repeats": 2},
    )
    return boot.cells[-1]


def aimed_at(symbol: str, module: Module) -> Ready[CallSetup]:
    """A cell's probe taken to be at a function's entry, where the module may have put it or not."""
    return Ready(CallSetup(symbol, OFFSET, CALLS, module))


@contextmanager
def someone_elses_probe(guest: Guest, place: str) -> Iterator[None]:
    """A probe by the kernel's own tracing, at ``symbol+offset``: an int3, or already a jump."""
    guest.put(f"p:stranger {place}".encode(), KPROBE_EVENTS)
    switch = "/sys/kernel/tracing/events/kprobes/stranger/enable"
    try:
        guest.put(b"1", switch)
        yield
    finally:
        guest.put(b"0", switch)
        guest.put(b"", KPROBE_EVENTS)


# --- a kprobe that is not single-stepped ----------------------------------------------------------


def test_a_kprobe_that_is_quietly_optimised_fails_its_cell(ready: ReadyGuest, modules: ModuleMaker) -> None:
    module = modules.probe("kprobe", PROBED, OFFSET)
    # Behind the lab's back, as soon as the module is there.
    script = f"until grep -q {module.name} /proc/modules; do sleep 0.01; done; echo 1 > {OPTIMISATION}"
    ready.guest.succeed(["sh", "-c", f"({script}) > /dev/null 2>&1 &"])
    # On a busy host it is optimised before the bytes are looked at for the first time, or before the traps are counted.
    seen = r"( to (cc|e9) .* \(|is not armed by int3: .*; that is ).*optimis|hits took \d+ breakpoint traps, not 2 each"
    with pytest.raises(EvidenceError, match=seen):
        measure_call(ready, kprobe_cell(), aimed_at(PROBED, module))
    assert ready.guest.get(OPTIMISATION) == b"1\n"


def test_an_optimised_kprobe_is_no_int3_and_no_djprobe(
    ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint
) -> None:
    module = modules.probe("kprobe", PROBED, OFFSET)
    with module_attached(ready.guest, probes()["kprobe"], module, point, ready.symbols) as attachment:
        single_stepped = attachment.wait_until_armed()
        ready.guest.put(b"1", OPTIMISATION)
        rounds = 0
        while (seen := observe(ready.guest, point)).live[0] != 0xE9 or seen.flags != "[OPTIMIZED]":
            assert (rounds := rounds + 1) < OPTIMISER_ROUNDS, "the kernel did not optimise the kprobe"
            ready.guest.succeed(["sleep", "0.05"])
        with pytest.raises(EvidenceError) as changed:
            check_same(probes()["kprobe"], single_stepped, seen, point, "meanwhile")
        with pytest.raises(EvidenceError, match=r"is not armed by int3: .* and the kernel lists it as \[OPTIMIZED\]"):
            check_armed(probes()["kprobe"], point, seen, "meanwhile")
        with pytest.raises(EvidenceError, match="is not armed by a djprobe's own jump"):
            check_armed(probes()["djprobe"], point, seen, "meanwhile")
        with pytest.raises(EvidenceError, match=r"the bytes at .* are e9 "):
            check_untouched(point, seen, "meanwhile")
        ready.guest.put(b"0", OPTIMISATION)
    assert changed.value.what == (
        f"meanwhile, {point.name} changed from cc {point.original[1:6].hex(' ')} (int3) "
        f"to {seen.live[:6].hex(' ')} (the kernel's jump optimisation)"
    )


def test_a_jump_the_kernel_never_makes_is_not_believed(
    ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orchestrator.probes.final_form._TURNS", 3)
    never = probes()["kprobe-optimized"].model_copy(update={"optimisation": False})
    with (
        pytest.raises(EvidenceError, match=r"is not armed by the kernel's jump optimisation: .*; that is int3"),
        module_attached(
            ready.guest, never, modules.probe("kprobe", PROBED, OFFSET), point, ready.symbols
        ) as attachment,
    ):
        attachment.wait_until_armed()
    assert observe(ready.guest, point).live == point.original


def test_kprobes_that_are_switched_off_are_found_out(
    ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint
) -> None:
    with module_attached(
        ready.guest, probes()["kprobe"], modules.probe("kprobe", PROBED, OFFSET), point, ready.symbols
    ) as attachment:
        attachment.wait_until_armed()
        ready.guest.put(b"0", "/sys/kernel/debug/kprobes/enabled")
        with pytest.raises(EvidenceError, match=f"{re.escape(point.name)} is not armed by int3: its bytes are 55 "):
            attachment.wait_until_armed()
        ready.guest.put(b"1", "/sys/kernel/debug/kprobes/enabled")
        attachment.wait_until_armed()


# --- a probe that is not where it should be, or does not fire -------------------------------------


def test_a_module_that_never_fires_fails_its_cell(ready: ReadyGuest, modules: ModuleMaker) -> None:
    never_hit = aimed_at(UNCALLED, modules.probe("kprobe", UNCALLED, OFFSET))
    with pytest.raises(EvidenceError, match=r"^1000 calls were made and the probe's handler ran 0 times$"):
        measure_call(ready, kprobe_cell(), never_hit)


def test_a_module_that_probes_another_function_fails_its_cell(ready: ReadyGuest, modules: ModuleMaker) -> None:
    elsewhere = aimed_at(PROBED, modules.probe("kprobe", UNCALLED, OFFSET))
    with pytest.raises(EvidenceError, match=f"the kernel lists no probe at {PROBED}\\+0x5$"):
        measure_call(ready, kprobe_cell(), elsewhere)


def test_a_wrong_offset_is_no_probe_point(ready: ReadyGuest) -> None:
    with pytest.raises(EvidenceError, match=rf"^{PROBED}\+0x8 is not at the function's entry: .*, so \+0x0, \+0x5 are"):
        find_entry(ready.guest, ready.symbols, PROBED, OFFSET + 3)


def test_a_symbol_that_is_not_there_is_no_probe_point(ready: ReadyGuest) -> None:
    with pytest.raises(EvidenceError, match=r"^the guest's kernel has no function sys_gettimeofday_2005$"):
        find_entry(ready.guest, ready.symbols, "sys_gettimeofday_2005", OFFSET)


def test_a_point_that_is_probed_already_is_refused(ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint) -> None:
    module = modules.probe("kprobe", PROBED, OFFSET)
    with (
        someone_elses_probe(ready.guest, point.name),
        pytest.raises(EvidenceError, match=r"^before loading, the bytes at .* are (cc|e9) .*, not the original 55 "),
        module_attached(ready.guest, probes()["kprobe"], module, point, ready.symbols),
    ):
        pytest.fail("the module was loaded")
    assert module.name not in ready.guest.get("/proc/modules").decode()


def test_bytes_that_do_not_come_back_are_found_out(ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint) -> None:
    module = modules.probe("kprobe", PROBED, OFFSET)
    probing = module_attached(ready.guest, probes()["kprobe"], module, point, ready.symbols)
    probing.__enter__()
    with (
        someone_elses_probe(ready.guest, point.name),
        pytest.raises(EvidenceError, match=r"^after unloading, the bytes at .* are (cc|e9) "),
    ):
        probing.__exit__(None, None, None)
    check_untouched(point, observe(ready.guest, point), "now")


@pytest.mark.parametrize(("probe", "offset", "handler"), [("kprobe", OFFSET, "noop"), ("kprobe-ftrace", 0, "record")])
def test_a_hit_whose_handler_is_left_out_fails_its_cell(
    ready: ReadyGuest, modules: ModuleMaker, probe: str, offset: int, handler: Handler
) -> None:
    """Another kprobe's handler hits the probe, whenever the program writes: the kernel leaves the handler out."""
    rogue, called = modules.rogue("nested_hit"), ready.symbols.address(PROBED)
    ready.guest.put(rogue.file, "/tmp/nested_hit.ko")
    place = ["symbol=__ia32_sys_write", f"offset={OFFSET}"]
    ready.guest.succeed(["insmod", "/tmp/nested_hit.ko", *place, f"called={called:#x}"])
    try:
        prepared = Ready(CallSetup(PROBED, offset, CALLS, modules.probe("kprobe", PROBED, offset)))
        with pytest.raises(EvidenceError, match=r"^the kernel skipped the handler \d+ times$"):
            measure_call(ready, kprobe_cell(probe, handler), prepared)
    finally:
        ready.guest.succeed(["rmmod", rogue.name])


def test_a_kprobe_that_the_kernel_emulates_is_not_single_stepped(ready: ReadyGuest, modules: ModuleMaker) -> None:
    """Where traps are not counted, nothing but the kernel's own word tells them apart."""
    symbol, offset = call_instruction(ready)
    place = find_place(ready.guest, ready.symbols, symbol, offset)
    with (
        pytest.raises(EvidenceError, match=r"^the probed instruction is emulated, and for kprobe it must be single-st"),
        module_attached(
            ready.guest, probes()["kprobe"], modules.probe("kprobe", symbol, offset), place, ready.symbols
        ) as attachment,
    ):
        attachment.wait_until_armed()


def call_instruction(ready: ReadyGuest) -> tuple[str, int]:
    """A function and where it calls another."""
    for symbol in ("__ia32_sys_gettimeofday", "__ia32_sys_close", "__ia32_sys_getuid", "__ia32_sys_newuname"):
        start = ready.symbols.address(symbol)
        code = ready.guest.read_memory(start, 128)
        for offset in (number for number in range(OFFSET, 100) if code[number] == 0xE8):
            target = start + offset + 5 + int.from_bytes(code[offset + 1 : offset + 5], "little", signed=True)
            if ready.symbols.names(target):
                return symbol, offset
    pytest.fail("none of these functions calls another")


# --- a place that others use as well ---------------------------------------------------------------


def test_a_second_kprobe_at_the_place_is_found_out(ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint) -> None:
    """The kernel lists both, and the bytes are those of one."""
    with module_attached(
        ready.guest, probes()["kprobe"], modules.probe("kprobe", PROBED, OFFSET), point, ready.symbols
    ) as attachment:
        alone = attachment.wait_until_armed()
        with someone_elses_probe(ready.guest, point.name):
            with pytest.raises(EvidenceError, match=rf"lists 2 kprobes at {re.escape(point.name)}, not one$"):
                attachment.wait_until_armed()
            with pytest.raises(EvidenceError, match=r"the kprobes at .* became 2, from 1$"):
                check_same(probes()["kprobe"], alone, attachment.observe(), point, "meanwhile")
        assert attachment.wait_until_armed() == alone


@pytest.mark.parametrize(
    "kind", ["kprobe-ftrace", pytest.param("kretprobe-ftrace", marks=pytest.mark.nightly("a third kind")), "ftrace"]
)
def test_another_user_of_the_tracer_is_found_out(ready: ReadyGuest, modules: ModuleMaker, kind: str) -> None:
    function = find_entry(ready.guest, ready.symbols, PROBED, 0)
    module = modules.probe(probes()[kind].template or "", PROBED, 0)
    with module_attached(ready.guest, probes()[kind], module, function, ready.symbols) as attachment:
        alone = attachment.wait_until_armed()
        with traced_function(ready.guest, PROBED):
            with pytest.raises(EvidenceError, match=f"^after loading, the function tracer has 2 users of {PROBED}"):
                attachment.wait_until_armed()
            with pytest.raises(EvidenceError, match=f"tracer's users of {PROBED} became 2, from 1$"):
                check_same(probes()[kind], alone, attachment.observe(), function, "meanwhile")
        # On i386 all users share one trampoline, and two of them are called through the whole list.
        with (
            traced_function(ready.guest, UNCALLED),
            pytest.raises(EvidenceError, match=r"^after loading, the function tracer calls ftrace_ops_list_func at "),
        ):
            attachment.wait_until_armed()
        assert attachment.wait_until_armed() == alone


def test_a_function_is_traced_under_any_of_its_names(ready: ReadyGuest, modules: ModuleMaker) -> None:
    """The tracer lists getpid's function as __do_sys_getpid."""
    function = find_entry(ready.guest, ready.symbols, "__ia32_sys_getpid", 0)
    module = modules.probe("ftrace", "__ia32_sys_getpid", 0)
    with module_attached(ready.guest, probes()["ftrace"], module, function, ready.symbols) as attachment:
        assert attachment.wait_until_armed().called == "ftrace_ops_list_func"


# --- what a module refuses ------------------------------------------------------------------------


def refusal(ready: ReadyGuest, modules: ModuleMaker, template: str, symbol: str, offset: int) -> str:
    """The lab's error for a module that the guest's kernel refuses, without the module's name."""
    module = modules.probe(template, symbol, offset)
    somewhere = find_entry(ready.guest, ready.symbols, PROBED, OFFSET)
    with (
        pytest.raises(EvidenceError) as refused,
        module_attached(ready.guest, probes()[template], module, somewhere, ready.symbols),
    ):
        pytest.fail("the module was loaded")
    check_untouched(somewhere, observe(ready.guest, somewhere), "after a refusal")
    beginning, end = refused.value.what.split("kernel: ", 1)
    assert beginning == f"module {module.name} was not accepted by the guest's "
    return end


def test_a_probe_inside_an_instruction_is_refused(ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint) -> None:
    inside = OFFSET + point.original.index(b"\x89\xe5") + 1  # mov %esp,%ebp
    printed = refusal(ready, modules, "kprobe", PROBED, inside)
    assert printed == f"{PROBED}+{inside:#x}: not the first byte of an instruction"


@pytest.mark.parametrize(
    ("template", "symbol", "offset", "reason"),
    [
        ("kprobe", "sys_gettimeofday_2005", 5, "no such symbol"),
        ("djprobe", PROBED, 6, "not a function entry (the instruction after endbr and the ftrace nop)"),
    ],
)
def test_a_refusing_module_gives_its_reason(
    ready: ReadyGuest, modules: ModuleMaker, template: str, symbol: str, offset: int, reason: str
) -> None:
    assert refusal(ready, modules, template, symbol, offset) == f"{symbol}+{offset:#x}: {reason}"


def test_a_djprobe_refuses_a_function_that_is_probed_further_down(
    ready: ReadyGuest, modules: ModuleMaker, point: ProbePoint
) -> None:
    shown = OFFSET + len(point.original)
    for further in range(shown, shown + 15):
        # The kernel takes only the first byte of an instruction for a probe; an instruction has at most 15.
        try:
            with someone_elses_probe(ready.guest, f"{PROBED}+{further:#x}"):
                printed = refusal(ready, modules, "djprobe", PROBED, OFFSET)
        except GuestError:
            continue
        break
    assert printed == f"{PROBED}+0x5: another probe in the function"


# --- a guest that is not as it was ----------------------------------------------------------------


def test_another_clocksource_fails_the_cell(ready: ReadyGuest, modules: ModuleMaker) -> None:
    prepared = aimed_at(PROBED, modules.probe("kprobe", PROBED, OFFSET))
    ready.guest.put(b"acpi_pm", CLOCKSOURCE)
    try:
        with pytest.raises(EvidenceError, match=r"^the guest's clocksource changed from tsc to acpi_pm$"):
            measure_call(ready, kprobe_cell(), prepared)
    finally:
        ready.guest.put(b"tsc", CLOCKSOURCE)


def test_our_modules_taint_is_allowed_and_no_other(ready: ReadyGuest) -> None:
    # Whatever was loaded before, the kernel has only ever met unsigned modules from outside its tree.
    check_taint(int(ready.guest.get("/proc/sys/kernel/tainted")))
    with pytest.raises(EvidenceError, match=r"is tainted \(12352\), by more than the lab's modules$"):
        check_taint(1 << 6 | 1 << 12 | 1 << 13)
