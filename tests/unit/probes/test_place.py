# SPDX-License-Identifier: GPL-2.0-only
"""Is a tracepoint found in the kernel's memory, and is what it calls read from there?"""

from __future__ import annotations

import struct
from typing import cast

import pytest

from orchestrator.arch import Arch
from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.place import tracepoint_of_event
from orchestrator.probes.point import Point
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.tracepoints import find_tracepoint
from orchestrator.probes.user_point import UserPoint, check_optimised, optimisation_refusal

NOP, JUMP = bytes.fromhex("0f1f440000"), bytes.fromhex("e910000000")


class Kernel:
    """A kernel's memory with one tracepoint, ``wake``: its words are of 4 or of 8 bytes, newer ones have a stub.

    From the beginning: text (one function each 256 bytes), the table of static branches, the struct, its array, and
    the struct of ``sys_enter``. With ``has_ext`` the functions that register are in a struct of their own.
    """

    def __init__(
        self,
        *,
        word: int,
        has_stub: bool = False,
        has_call: bool = False,
        is_listed: bool = True,
        has_ext: bool = False,
    ) -> None:
        self.base = 0xC1000000 if word == 4 else 0xFFFFFFFF_81000000
        self._code = {4: "I", 8: "Q"}[word]
        self._word = word
        self.memory = bytearray(0x4000)
        self.symbols: dict[str, tuple[str, int]] = {
            "_stext": ("T", 0),
            "probed": ("T", 0x100),
            "__traceiter_wake": ("T", 0x200),
            "first": ("t", 0x300),
            "second": ("t", 0x400),
            "__traceiter_sys_enter": ("T", 0x700),
            "syscall_regfunc": ("T", 0x800),
            "_etext": ("T", 0x1000),
            "_sinittext": ("T", 0x3F00),
        }
        if has_stub:
            self.symbols["__probestub_wake"] = ("T", 0x500)
        if has_call:
            self.symbols["__SCT__tp_func_wake"] = ("T", 0x600)
        if is_listed:
            self.symbols["__tracepoint_wake"] = ("D", 0x2000)
            self.symbols["__tracepoint_sys_enter"] = ("D", 0x2800)
        self.memory[0x104:0x109] = NOP
        self.words(0x1800, self.base + 0x104 - (self.base + 0x1800) & 0xFFFFFFFF)
        self.memory[0x1F00:0x1F05] = b"wake\0"
        stub = (self.base + 0x500,) if has_stub else ()
        key = (0, self.base + 0x1800 | 1)
        registering = () if has_ext else (0, 0)
        fields = (self.base + 0x1F00, *key, 0, 0, self.base + 0x200, *stub, *registering, 0)
        self.words(0x2000, *fields, 0x77)
        self.functions_at = 0x2000 + word * (len(fields) - 1)
        self.memory[0x1F80:0x1F8A] = b"sys_enter\0"
        behind = [0, 0x77] if has_ext else [self.base + 0x800, self.base + 0x900, 0]
        self.words(0x2800, self.base + 0x1F80, *key, 0, 0, self.base + 0x700, *stub, *behind)

    def words(self, at: int, *values: int) -> None:
        struct.pack_into(f"<{len(values)}{self._code}", self.memory, at, *values)

    def call(self, *names: str) -> None:
        """Switch the tracepoint on, with these functions."""
        self.memory[0x104:0x109] = JUMP if names else NOP
        self.words(0x2000 + self._word, len(names))
        for number, name in enumerate((*names, None)):
            function = 0 if name is None else self.base + self.symbols[name][1]
            self.words(0x3000 + 3 * self._word * number, function, 0, 10)
        self.words(self.functions_at, self.base + 0x3000 if names else 0)
        self.lead_to(names[0] if len(names) == 1 else "__traceiter_wake")

    def lead_to(self, name: str) -> None:
        """Let the static call lead there."""
        self.memory[0x600:0x605] = b"\xe9" + struct.pack("<i", self.symbols[name][1] - 0x605)

    def read_memory(self, address: int, size: int) -> bytes:
        assert 0 <= address - self.base <= len(self.memory) - size, f"{address:#x}"
        return bytes(self.memory[address - self.base : address - self.base + size])

    @property
    def listing(self) -> Symbols:
        lines = [f"{self.base + at:08x} {kind} {name}\n" for name, (kind, at) in self.symbols.items()]
        return Symbols("".join(lines).encode())

    @property
    def guest(self) -> Guest:
        return cast("Guest", self)


KERNELS = [
    pytest.param({"word": 4, "is_listed": False}, id="i386"),
    pytest.param({"word": 8}, id="x86_64"),
    pytest.param({"word": 8, "has_call": True}, id="static call"),
    pytest.param({"word": 8, "has_call": True, "has_stub": True}, id="stub"),
    pytest.param({"word": 4, "has_stub": True, "is_listed": False}, id="i386 with a stub"),
    pytest.param({"word": 8, "has_call": True, "has_stub": True, "has_ext": True}, id="ext"),
    pytest.param({"word": 4, "has_stub": True, "has_ext": True, "is_listed": False}, id="i386 with ext"),
]


@pytest.mark.parametrize("form", KERNELS)
def test_what_a_tracepoint_calls_is_read(form: dict[str, int]) -> None:
    kernel = Kernel(**form)  # type: ignore[arg-type]
    tracepoint = find_tracepoint(kernel.guest, kernel.listing, "wake")
    assert (tracepoint.branch.address, tracepoint.branch.name) == (kernel.base + 0x104, "trace_wake")
    off = tracepoint.observe(kernel.guest, kernel.listing)
    assert (off.live, off.flags, off.called) == (NOP, None, None)
    kernel.call("first")
    on = tracepoint.observe(kernel.guest, kernel.listing)
    assert (on.live, on.flags, on.called) == (JUMP, "[ENABLED]", "first")
    kernel.call("first", "second")
    assert tracepoint.observe(kernel.guest, kernel.listing).called == "first, second"
    kernel.call()
    assert tracepoint.observe(kernel.guest, kernel.listing) == off


def test_a_static_call_that_leads_elsewhere_is_found() -> None:
    kernel = Kernel(word=8, has_call=True)
    tracepoint = find_tracepoint(kernel.guest, kernel.listing, "wake")
    kernel.call("first")
    kernel.lead_to("second")
    with pytest.raises(EvidenceError, match=r"the static call of the tracepoint wake is e9 .* does not lead to first$"):
        tracepoint.observe(kernel.guest, kernel.listing)


def test_an_array_without_an_end_is_no_array() -> None:
    kernel = Kernel(word=8)
    tracepoint = find_tracepoint(kernel.guest, kernel.listing, "wake")
    kernel.call(*["first"] * 9)
    with pytest.raises(EvidenceError, match=r"^the tracepoint wake calls more than 8 functions$"):
        tracepoint.observe(kernel.guest, kernel.listing)


def test_unknown_tracepoint_is_named() -> None:
    kernel = Kernel(word=8)
    with pytest.raises(EvidenceError, match=r"^the guest's kernel has no tracepoint wakf\n") as refused:
        find_tracepoint(kernel.guest, kernel.listing, "wakf")
    assert refused.value.hint == "did you mean wake?"
    kernel.words(0x2000 + 16, 0)
    with pytest.raises(EvidenceError, match=r"^no code of the guest's kernel has the tracepoint wake$"):
        find_tracepoint(kernel.guest, kernel.listing, "wake")


def test_a_tracepoint_that_is_on_already_is_refused() -> None:
    kernel = Kernel(word=8)
    kernel.call("first")
    with pytest.raises(EvidenceError, match=r"^there is no nop at 0xffffffff81000104"):
        find_tracepoint(kernel.guest, kernel.listing, "wake")


def test_a_struct_that_is_nowhere_is_said_to_be() -> None:
    kernel = Kernel(word=4, is_listed=False)
    kernel.memory[0x1F00] = ord("x")
    with pytest.raises(EvidenceError, match=r"^the tracepoint wake is nowhere in the data of the guest's kernel$"):
        find_tracepoint(kernel.guest, kernel.listing, "wake")


@pytest.mark.parametrize(
    ("event", "tracepoint"),
    [
        ("raw_syscalls.sys_enter", "sys_enter"),
        ("syscalls.sys_enter_read", "sys_enter"),
        ("syscalls.sys_exit_read", "sys_exit"),
        ("sched.sched_switch", "sched_switch"),
        ("sys_enter", "sys_enter"),
        ("mine.sys_enter_read", "sys_enter_read"),
    ],
)
def test_an_event_is_at_a_tracepoint(event: str, tracepoint: str) -> None:
    assert tracepoint_of_event(event) == tracepoint


# Does a point in a program have its experiment's name, and is a hit's address told from another place's?

CODE = bytes.fromhex("4154")


IN_PROGRAM = UserPoint("inner", 4, 0x401234, CODE, program="/tmp/workload", file_offset=0x1234)


IN_LIBRARY = UserPoint(
    *("malloc", 0, 0x98930, CODE),
    program="/tmp/workload",
    file_offset=0x98930,
    library="/usr/lib/libc.so.6",
    label="libc.so.6",
)


def test_names_and_files() -> None:
    assert (IN_PROGRAM.name, IN_PROGRAM.file) == ("program:inner+0x4", "/tmp/workload")
    assert (IN_LIBRARY.name, IN_LIBRARY.file) == ("libc.so.6:malloc", "/usr/lib/libc.so.6")


def test_a_library_is_at_other_pages_in_each_process() -> None:
    assert IN_PROGRAM.is_at(0x401234)
    assert not IN_PROGRAM.is_at(0x402234)
    assert IN_LIBRARY.is_at(0x7F1C34A00000 + 0x98930)
    assert not IN_LIBRARY.is_at(0x7F1C34A00000 + 0x98931)


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("vfs_read", Point("vfs_read")),
        ("vfs_read+0x0", Point("vfs_read", 0)),
        ("vfs_read+*", Point("vfs_read", is_whole=True)),
        ("program:inner", Point("inner", file="program")),
        ("program:lab:passed", Point("lab:passed", file="program")),
        ("libstdc++.so.6:_Znwm+0x4", Point("_Znwm", 4, "libstdc++.so.6")),
        ("libc.so.6:libc:setjmp", Point("libc:setjmp", file="libc.so.6")),
    ],
)
def test_a_point_is_of_the_kernel_the_program_or_a_library(text: str, point: Point) -> None:
    assert Point.of(text) == point
    assert str(point) == text
    assert point.library == (None if point.file == "program" else point.file)


# Is a uprobe optimised where the kernel does that, and nowhere else?

NOPS = {1: "90", 5: "0f1f440000", 10: "662e0f1f840000000000", 7: "0f1f8000000000", 11: "66662e0f1f840000000000"}
OPTIMISED_BY = {"6.17.13": None, "6.18.15": 5, "7.1.13": 5, "7.2.12": 10, "7.3.4": 10}
"""By the release, the size of the nop at which it optimises a uprobe."""


def at_nop(size: int, address: int = 0x401000) -> UserPoint:
    code = bytes.fromhex(NOPS[size]).ljust(16, b"\xc3")
    return UserPoint("begins", 0, address, code, program="/tmp/workload", file_offset=0x1000)


@pytest.mark.parametrize("release", OPTIMISED_BY)
@pytest.mark.parametrize("size", NOPS)
@pytest.mark.parametrize("arch", ["x86_64", "i386"])
def test_a_uprobe_is_optimised_at_the_nop_of_its_kernel(release: str, size: int, arch: Arch) -> None:
    plain, optimised = (
        optimisation_refusal(probes()[name], release, arch, at_nop(size))
        for name in ("bpf-uprobe", "bpf-uprobe-optimized")
    )
    if arch == "x86_64" and size == OPTIMISED_BY[release]:
        assert (plain, optimised) == ("the kernel optimises a uprobe at this nop: take bpf-uprobe-optimized", None)
    elif size in (10, 11):
        found = at_nop(size).original[:5].hex(" ")
        prefixed = f"uprobes are at no instruction with a prefix of es, cs, ss, ds or lock, as {found}"
        assert plain == optimised == prefixed
    else:
        assert plain is None
        assert optimised is not None
        assert optimised.endswith(f"and program:begins is {at_nop(size).original[:5].hex(' ')}")


@pytest.mark.parametrize(
    ("code", "is_refused"),
    [("3effe0", True), ("f0ff00", True), ("2e90", True), ("f3f00fb110", True), ("f30f1efa", False), ("6690", False)],
)
def test_no_uprobe_is_at_an_instruction_with_a_prefix_that_the_kernel_refuses(code: str, is_refused: bool) -> None:
    point = UserPoint("begins", 0, 0x401000, bytes.fromhex(code).ljust(16, b"\xc3"), program="mine", file_offset=0)
    refusal = optimisation_refusal(probes()["uprobe-event"], "6.12.117", "x86_64", point)
    assert ("prefix of es, cs" in (refusal or "")) == is_refused


def test_a_nop_across_a_page_is_left_alone() -> None:
    optimised = probes()["bpf-uprobe-optimized"]
    for size, release, last in ((10, "7.3.4", 0x401FF6), (5, "6.18.15", 0x401FFB)):
        assert optimisation_refusal(optimised, release, "x86_64", at_nop(size, last)) is None
        assert optimisation_refusal(optimised, release, "x86_64", at_nop(size, last + 1)) is not None


def test_the_running_process_must_have_the_call() -> None:
    check_optimised("7.1.13", "x86_64", at_nop(5), bytes.fromhex("e8f6dfffff"))
    check_optimised("7.3.4", "x86_64", at_nop(10), bytes.fromhex("488d642480e8f1dfffffc3"))
    for release, size, live in (
        ("7.3.4", 10, "cc2e0f1f840000000000c3"),
        ("7.3.4", 10, NOPS[10]),
        ("7.3.4", 10, "e8f6dfffff"),
        ("7.3.4", 5, "e8f6dfffff"),
        ("7.1.13", 5, "cc1f440000"),
        ("7.3.4", 10, ""),
    ):
        with pytest.raises(EvidenceError, match=r" at program:begins: its uprobe is not optimised$"):
            check_optimised(release, "x86_64", at_nop(size), bytes.fromhex(live))


def test_only_uprobes_need_an_instructions_start() -> None:
    assert optimisation_refusal(probes()["none"], "7.3.4", "x86_64", at_nop(10)) is None
