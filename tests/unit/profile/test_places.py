# SPDX-License-Identifier: GPL-2.0-only
"""Is each instruction counted for the function that it is in?"""

from __future__ import annotations

import subprocess
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.probes.module_functions import ModuleCode, code_at
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.profile.counted.counts import Code, Counts, Stack
from orchestrator.profile.counted.generated_code import MadeCode, listed_code, made_at
from orchestrator.profile.counted.places import Function, Places, UnlistedModule, places_of

LISTING = b"""c1000000 T _stext
c1000000 T startup
c1000100 D some_data
c1000200 t inner
c1000400 T _etext
d0000010 t module_function\t[other]
"""


def places() -> Places:
    symbols = Symbols(LISTING)

    def function_at(address: int) -> Function | None:
        found = symbols.function_at(address)
        return None if found is None else Function(*found)

    return Places(function_at, [range(0xC1000000, 0xC1000400), range(0xD0000000, 0xD0001000)], 0xC0000000, "callbench")


@pytest.mark.parametrize(
    ("address", "name", "place"),
    [
        (0x8049594, "callbench", "user"),
        (0xBFFFFFFF, "callbench", "user"),
        (0xC1000000, "startup", "kernel"),
        (0xC1000150, "startup", "kernel"),  # data is no function
        (0xC1000200, "inner", "kernel"),
        (0xC10003FF, "inner", "kernel"),
        (0xC1000400, "generated code", "generated"),
        (0xD0000008, "generated code", "generated"),  # in front of the module's first function
        (0xD0000020, "module_function", "module"),
        (0xD0001000, "generated code", "generated"),
    ],
)
def test_the_owner_of_an_instruction(address: int, name: str, place: str) -> None:
    owner = places().owner(address)
    assert (owner.function.name, owner.place) == (name, place)


def test_address_right_behind_a_module_is_not_in_the_module() -> None:
    module = UnlistedModule("mine", 0xD0000000, ModuleCode({"mine_exit": 0xD0000010}, 0xD0000040))
    found = places_of(Symbols(LISTING), [ModuleMemory(0xD0000000, 0xD0003000)], module, "callbench")
    owners = [found.owner(address) for address in (0xD000003F, 0xD0000040, 0xC1000200)]
    assert [(owner.function.name, owner.place) for owner in owners] == [
        ("mine_exit", "module"),
        ("generated code", "generated"),
        ("inner", "kernel"),
    ]


def test_a_module_s_code_ends_with_its_last_section(tmp_path: Path) -> None:
    source, file = tmp_path / "mine.s", tmp_path / "mine.ko"
    source.write_text(
        'first: .skip 48, 0x90\n.section .text.unlikely, "ax"\nlast: .skip 16, 0x90\n'
        '.section .init.text, "ax"\ninit: .skip 64, 0x90\n.data\nvalue: .skip 4096\n'
    )
    subprocess.run(["gcc", "-c", "-o", file, source], check=True)
    starts = {".text": "0xf8000000", ".text.unlikely": "0xf8000030"}
    code = code_at("mine", file, starts.__getitem__)
    assert code == ModuleCode({"first": 0xF8000000, "last": 0xF8000030}, 0xF8000040)


MADE = b"""\
c1000000 T _stext
f8000000 t module_function\t[other]
f8100000 t bpf_prog_6deef7357e7b4530\t[bpf]
f8100040 t bpf_prog_a04f5eef06a7f555_count_reads\t[bpf]
f8101000 t bpf_trampoline_6442478354\t[bpf]
f8102000 t ftrace_trampoline\t[__builtin__ftrace]
f8103000 t kprobe_insn_page\t[__builtin__kprobes]
f8104000 t kprobe_optinsn_page\t[__builtin__kprobes]
f8105000 t something_new\t[__builtin__other]
"""


@pytest.mark.parametrize(
    ("address", "name", "start"),
    [
        (0xF8000010, "generated code", 0),
        (0xF8100000, "a BPF program without a name", 0),
        (0xF8100050, "BPF program count_reads", 0xF8100040),
        (0xF8101010, "BPF trampoline", 0),
        (0xF8102001, "function tracer's trampoline", 0),
        (0xF8103020, "kprobe's slot", 0),
        (0xF8104020, "optimised kprobe's detour", 0),
        (0xF8106000, "something_new", 0),
        (0xF8200000, "generated code", 0),
    ],
)
def test_what_the_kernel_has_made(address: int, name: str, start: int) -> None:
    listed = listed_code(MADE)
    assert made_at(listed, address) == (name, start)
    owner = replace(places(), made_at=lambda place: made_at(listed, place)).owner(address)
    assert (owner.function.name, owner.place, owner.function.address) == (name, "generated", start)


def test_symbols_have_their_instructions_in_order_and_the_largest_comes_first() -> None:
    counts = {
        Code(0xC1000201, "c3"): Counts(1),
        Code(0xC1000200, "55"): Counts(1),
        Code(0xD0000014, "90"): Counts(9),
        Code(0x8049594, "40"): Counts(3),
    }
    module, program, inner = places().symbols(counts)
    assert (module.placed_title, module.executed) == ("module_function [other+0x10]", 9)
    assert [instruction.offset for instruction in module.instructions] == [4]
    assert (program.title, program.instructions[0].offset) == ("callbench", 0x8049594)
    assert [(instruction.offset, instruction.code) for instruction in inner.instructions] == [(0, "55"), (1, "c3")]


def test_stacks_are_folded_by_function() -> None:
    folded = places().stacks(
        {
            (0x8049000, 0x8049100): 3,  # all of the program is one
            (0x8049000, 0xC1000000, 0xC1000010): 5,  # a block of the function that was called
            (0x8049000, 0xC1000000, 0xC1000201): 7,  # of one that it jumped to
            (0x8049000, 0xC1000000, 0xC1000200, 0xC1000000, 0xC1000010): 2,  # that called the first again
            (0xD0000010, 0xD0000011): 1,
            (0x8049000, 0xC1000020): 0,
        }
    )
    assert {stack.names: stack.executed for stack in folded} == {
        "callbench": 3,
        "callbench;startup": 5,
        "callbench;startup;inner": 7,
        "callbench;startup;inner;startup": 2,
        "callbench;module_function [other]": 1,
    }


USER, STARTUP, INNER = 0x8049000, 0xC1000000, 0xC1000200


def entered(stacks: Mapping[Stack, int], executed: Mapping[Code, Counts]) -> dict[str, int | None]:
    """How often the innermost function of each stack was entered."""
    return {stack.names: stack.entered for stack in places().stacks(stacks, executed)}


def test_a_function_is_entered_as_often_as_the_block_at_its_entry() -> None:
    """``startup`` calls ``inner`` twice, and jumps there once."""
    executed = {
        Code(USER, "e800000000"): Counts(10, taken=10),
        Code(STARTUP, "90"): Counts(10),
        Code(STARTUP + 1, "e8fa010000"): Counts(10, taken=10),
        Code(STARTUP + 6, "e8f5010000"): Counts(10, taken=10),
        Code(STARTUP + 11, "e9f0010000"): Counts(10, taken=10),
        Code(INNER, "90"): Counts(30),
        Code(INNER + 1, "90"): Counts(30),
        Code(INNER + 2, "c3"): Counts(30, taken=30),
    }
    stacks = {
        (USER,): 10,
        (STARTUP, STARTUP): 20,
        (STARTUP, STARTUP + 6): 10,
        (STARTUP, STARTUP + 11): 10,
        (STARTUP, INNER, INNER): 60,
        (STARTUP, INNER): 30,
    }
    called = "callbench;startup"
    assert entered(stacks, executed) == {"callbench": None, called: 10, f"{called};inner": 30}
    # Where QEMU has cut one of these blocks in two, the same instructions are no longer as many entries.
    cut = {**stacks, (STARTUP, INNER): 28, (STARTUP, INNER + 1): 2}
    assert entered(cut, executed) == {"callbench": None, called: 10, f"{called};inner": None}
    # Programs are counted by function.
    assert set(entered(stacks, {}).values()) == {None}


@pytest.mark.parametrize(
    ("codes", "length"),
    [
        ({"eb00": 20, "c3": 10}, 1),  # a jump that leads on
        ({"ebfe": 30, "c3": 10}, None),  # to itself
        ({"f3ab": 30, "c3": 10}, None),  # a string instruction, repeated
        ({"0f31": 10, "c3": 10}, 1),  # reads the clock, which ends a block
    ],
)
def test_a_block_that_its_own_function_goes_back_to_is_no_entry(codes: dict[str, int], length: int | None) -> None:
    first, count = next(iter(codes.items()))
    executed = {Code(INNER, first): Counts(count, taken=count), Code(INNER + 2, "c3"): Counts(10, taken=10)}
    found = entered({(INNER, INNER): count, (INNER, INNER + 2): 10}, executed)
    assert found["callbench;inner"] == (None if length is None else count // length)


@st.composite
def executions(draw: st.DrawFn) -> tuple[dict[Stack, int], dict[Code, Counts], dict[str, int]]:
    """Blocks and instructions of some executions, and how often each stack was really entered.

    ``inner`` is nops, a jump back to its beginning and a return. ``startup`` calls it, jumps into it, or runs on into
    it. QEMU may end a block behind any instruction. Jumps elsewhere than to the beginning count if there are no others.
    """
    nops, cuts, loops = draw(st.integers(0, 3)), draw(st.booleans()), draw(st.sampled_from([0, 2]))
    jump = INNER + nops
    codes = {STARTUP: "ffd0", INNER - 1: "90", **dict.fromkeys(range(INNER, jump), "90"), jump: f"74{254 - nops:02x}"}
    codes[jump + 2] = "c3"
    stacks, counts, entries = Counter[Stack](), Counter[tuple[int, bool]](), Counter[bool]()

    def execute(frames: Stack, addresses: Sequence[int]) -> None:
        begin = addresses[0]
        for at, following in zip(addresses, [*addresses[1:], None], strict=True):
            stacks[(*frames, begin)] += 1
            counts[at, following != at + len(codes[at]) // 2] += 1
            if following is not None and (codes[at] != "90" or (cuts and draw(st.booleans()))):
                begin = following

    times = draw(st.integers(1, 5))
    for _ in range(times):
        execute((STARTUP,), [STARTUP])
        loop = [*range(INNER, jump + 1)]
        rest = [*loop * draw(st.integers(0, loops)), jump + 2]
        match draw(st.sampled_from(["calls", "jumps", "runs on"])):
            case "calls":
                execute((STARTUP, INNER), [*loop, *rest])
                entries[True] += 1
            case "jumps":
                first = draw(st.integers(0, nops))
                execute((STARTUP,), [*loop[first:], *rest])
                entries[first == 0] += 1
            case "runs on":
                execute((STARTUP,), [INNER - 1, *loop, *rest])
                entries[True] += 1
    truth = {"callbench;startup": times, "callbench;startup;inner": entries[True] or entries[False]}
    executed = {
        Code(at, code): Counts(counts[at, True] + counts[at, False], taken=counts[at, True])
        for at, code in codes.items()
    }
    return dict(stacks), {code: one for code, one in executed.items() if one.executed}, truth


@given(executions())
def test_unproved_profile_has_no_number(
    executed: tuple[dict[Stack, int], dict[Code, Counts], dict[str, int]],
) -> None:
    stacks, counts, truth = executed
    for names, number in entered(stacks, counts).items():
        assert number in (None, truth[names]), names


def test_what_instructions_name_is_not_looked_up_in_generated_code() -> None:
    """The kernel's list of that takes a guest 98 million instructions, and most of what they name is data."""
    asked: list[int] = []

    def made(address: int) -> MadeCode:
        asked.append(address)
        return MadeCode("made")

    found = replace(places(), made_at=made)
    assert found.names([Code(0xC1000200, "a10001a0c1"), Code(0xC1000205, "e9f6fdff10")]) == {}
    assert not asked


def test_functions_that_instructions_lead_to_have_names() -> None:
    codes = [
        Code(0xC1000200, "e9fbfdffff"),  # jmp startup
        Code(0xC1000205, "7409"),  # je inner+0x10, of the same function
        Code(0xC1000207, "6800020cc1"),  # push some number
        Code(0xC100020C, "68000200c1"),  # push inner
        Code(0xC1000211, "a10001a0c1"),  # data
        Code(0xD0000014, "e8e70100f1"),  # call from the module into the kernel
        Code(0xD0000019, "ebf5"),  # jmp module_function
        Code(0x8049594, "e800000000"),  # the program's own
        Code(0xE0000000, "e9000200e1"),  # generated code jumps back
    ]
    assert places().names(codes) == {
        "": {0xC1000000: "startup", 0xC1000200: "inner", 0xC1000205: "inner+0x5", 0xC1000210: "inner+0x10"},
        "other": {0xC1000200 - 0xD0000000 + (1 << 32): "inner", 0x10: "module_function [other]"},
    }
