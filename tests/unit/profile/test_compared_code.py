# SPDX-License-Identifier: GPL-2.0-only
"""Is code that only moved equal, and is every other change of a function found?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.errors import UsageError
from orchestrator.profile.code.annotated_code import annotated
from orchestrator.profile.code.compared_code import ComparedCode, with_code
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_difference import difference

Arch = Literal["i386", "x86_64"]


TEXT = {"i386": 0xC1000000, "x86_64": 0xFFFFFFFF81000000}


GAP = 0x40000


@dataclass(frozen=True)
class Kernel:
    """Where a build has put its functions, and its data."""

    arch: Arch
    functions: int
    data: int

    @property
    def word(self) -> int:
        return {"i386": 4, "x86_64": 8}[self.arch]

    def function(self, index: int) -> int:
        return TEXT[self.arch] + self.functions + index * GAP

    def variable(self) -> bytes:
        return ((TEXT[self.arch] + 0x800000 + self.data) % (1 << 32)).to_bytes(4, "little")


Maker = Callable[[Kernel, int], bytes]
"""The bytes of an instruction at an address of a kernel."""


def branch(opcode: str, function: int, behind: int = 0) -> Maker:
    def made(kernel: Kernel, address: int) -> bytes:
        code = bytes.fromhex(opcode)
        distance = kernel.function(function) + behind - (address + len(code) + 4)
        return code + distance.to_bytes(4, "little", signed=True)

    return made


def of_data(before: str, behind: str = "") -> Maker:
    return lambda kernel, address: bytes.fromhex(before) + kernel.variable() + bytes.fromhex(behind)


def plain(code: str) -> Maker:
    return lambda kernel, address: bytes.fromhex(code)


def relative_data(before: str) -> Maker:
    """``mov eax, [rip + distance]``."""

    def made(kernel: Kernel, address: int) -> bytes:
        code = bytes.fromhex(before)
        target = TEXT[kernel.arch] + 0x900000 + kernel.data
        return code + (target - address - len(code) - 4).to_bytes(4, "little", signed=True)

    return made


COMMON: dict[str, Maker] = {
    "push": plain("55"),
    "nop": plain("90"),
    "constant": plain("b8f2ffffff"),
    "field": plain("8b4308"),
    "short jump back": plain("ebfe"),
    "locked": plain("f00fba2b00"),
    "call": branch("e8", 1),
    "tail call": branch("e9", 2),
    "call into the middle": branch("e8", 1, 5),
    "conditional": branch("0f84", 2),
    "no instruction": plain("ff"),
}


OF_ARCH: dict[Arch, dict[str, Maker]] = {
    "i386": {
        **COMMON,
        "load": of_data("a1"),
        "indexed": of_data("8b0485"),
        "address": of_data("68"),
        "compared": of_data("813d", "2a000000"),
        "per-cpu": of_data("64a1"),
    },
    "x86_64": {
        **COMMON,
        "load": relative_data("8b05"),
        "indexed": of_data("8b04c5"),
        "address": of_data("48c7c7"),
        "compared": of_data("48817c2408"),
        "stored": of_data("48c744f708"),
        "per-cpu": plain("65488b0425c0fc0100"),
    },
}


FURTHER: dict[str, Maker] = {
    "other constant": plain("b8f1ffffff"),
    "call further in": branch("e8", 1, 6),
    "over two": plain("7402"),
    "over five": plain("7405"),
    "near": plain("8b0500200000"),
    "before it": plain("8b05f8ffffff"),
}
"""Not for any function: what they jump to may be behind its end."""


@dataclass(frozen=True)
class Step:
    """An instruction of a function, and how often a call executes it."""

    name: str
    executed: int = 1


def profile(kernel: Kernel, steps: Sequence[Step], *, calls: int = 10, name: str = "f", start: int = 0) -> CellProfile:
    """A function of these instructions, ``start`` bytes behind where it would be, and two that it may call."""
    counts: list[InstructionCount] = []
    address = kernel.function(0) + start
    for step in steps:
        code = {**OF_ARCH[kernel.arch], **FURTHER}[step.name](kernel, address)
        counts.append(InstructionCount(address - kernel.function(0) - start, code.hex(), step.executed * calls))
        address += len(code)
    symbols = [SymbolProfile(name=name, place="kernel", address=kernel.function(0) + start, instructions=tuple(counts))]
    for index in (1, 2):
        body = tuple(InstructionCount(offset, "90", calls) for offset in range(8))
        called = SymbolProfile(name=f"called{index}", place="kernel", address=kernel.function(index), instructions=body)
        symbols.append(called)
    return CellProfile(
        cell="a/b", arch=kernel.arch, calls=calls, has_details=False, symbols=tuple(symbols), names=names(symbols)
    )


def names(symbols: Sequence[SymbolProfile]) -> dict[str, dict[int, str]]:
    """What a kernel calls any place in these functions: all of them, far more than instructions refer to."""
    return {
        "": {
            symbol.address + behind: f"{symbol.name}+{behind:#x}" if behind else symbol.name
            for symbol in symbols
            for behind in range(1024)
        }
    }


ARCHES: st.SearchStrategy[Arch] = st.sampled_from(["i386", "x86_64"])


@st.composite
def kernels(draw: st.DrawFn, arch: Arch) -> Kernel:
    return Kernel(arch, draw(st.integers(0, 0x3FFFFF)), draw(st.integers(0, 0xFFFFF)))


@st.composite
def steps(draw: st.DrawFn, arch: Arch) -> list[Step]:
    names = st.sampled_from(sorted(OF_ARCH[arch]))
    return draw(st.lists(st.builds(Step, names, st.integers(1, 3)), min_size=1, max_size=30))


@given(st.data(), ARCHES)
def test_code_that_only_moved_is_equal(data: st.DataObject, arch: Arch) -> None:
    first, second = data.draw(kernels(arch)), data.draw(kernels(arch))
    code = data.draw(steps(arch))
    before, after = profile(first, code), profile(second, code, calls=20, start=data.draw(st.integers(0, 64)))
    function_difference = ComparedCode(before, after).function("f")
    assert list(function_difference.instructions) == []
    assert function_difference.equal == len(code)
    compared = with_code(difference(before, after))
    assert (list(compared.symbols), compared.equal, list(compared.other_code)) == ([], 3, [])


@given(st.data(), ARCHES)
def test_the_changes_of_instructions_are_the_function_s(data: st.DataObject, arch: Arch) -> None:
    one, other_steps = data.draw(steps(arch)), data.draw(steps(arch))
    before, after = profile(data.draw(kernels(arch)), one), profile(data.draw(kernels(arch)), other_steps)
    function_difference = ComparedCode(before, after).function("f")
    assert (
        sum(instruction.change for instruction in function_difference.instructions) == function_difference.symbol.change
    )
    assert (
        sum(step.executed for step in other_steps) - sum(step.executed for step in one)
        == function_difference.symbol.change
    )
    gone = [step for step in function_difference.instructions if step.after is None]
    new = [step for step in function_difference.instructions if step.before is None]
    counted = len(function_difference.instructions) - len(gone) - len(new)
    assert (function_difference.equal + counted + len(gone), function_difference.equal + counted + len(new)) == (
        len(one),
        len(other_steps),
    )
    for side in ("before_offset", "after_offset"):
        offsets = [getattr(step, side) for step in function_difference.instructions if getattr(step, side) is not None]
        assert offsets == sorted(offsets)


@given(st.data(), ARCHES)
def test_one_more_instruction_is_the_only_difference(data: st.DataObject, arch: Arch) -> None:
    code = data.draw(steps(arch))
    place = data.draw(st.integers(0, len(code)))
    more = [*code[:place], Step("constant", 7), *code[place:]]
    before, after = profile(data.draw(kernels(arch)), code), profile(data.draw(kernels(arch)), more)
    function_difference = ComparedCode(before, after).function("f")
    if all(step.name != "constant" for step in code):
        (only,) = function_difference.instructions
        assert (only.before, only.after, only.before_offset) == (None, Fraction(7), None)
        assert "0xfffffff2" in only.text
    assert function_difference.symbol.change == 7


@given(st.data(), ARCHES)
def test_an_instruction_that_is_executed_more_often_is_found(data: st.DataObject, arch: Arch) -> None:
    code = data.draw(steps(arch))
    place = data.draw(st.integers(0, len(code) - 1))
    more = [*code[:place], Step(code[place].name, code[place].executed + 1), *code[place + 1 :]]
    before, after = profile(data.draw(kernels(arch)), code), profile(data.draw(kernels(arch)), more)
    (only,) = ComparedCode(before, after).function("f").instructions
    assert (only.before, only.after) == (Fraction(code[place].executed), Fraction(code[place].executed + 1))


EMPTY = CellProfile(cell="a/b", arch="i386", calls=10, has_details=False, symbols=())


HERE, MOVED = Kernel("i386", 0, 0), Kernel("i386", 0x1230, 0x40)


def test_the_names_of_what_is_called_are_shown() -> None:
    code = [Step("push"), Step("call"), Step("call into the middle"), Step("tail call")]
    function_difference = ComparedCode(profile(HERE, []), profile(HERE, code)).function("f")
    assert [instruction.text for instruction in function_difference.instructions] == [
        "push ebp",
        "call called1",
        "call called1+0x5",
        "jmp called2",
    ]


def test_a_jump_over_what_is_new_is_equal() -> None:
    before = profile(HERE, [Step("over two"), Step("push"), Step("push"), Step("nop")])
    after = profile(MOVED, [Step("over five"), Step("push"), Step("push"), Step("field"), Step("nop")])
    function_difference = ComparedCode(before, after).function("f")
    assert [(instruction.text, instruction.before) for instruction in function_difference.instructions] == [
        ("mov eax, dword ptr [ebx + 8]", None)
    ]
    assert ComparedCode(profile(HERE, []), after).function("f").instructions[0].text == "je +0x7"


@pytest.mark.parametrize(("name", "address"), [("near", 0xFFFFFFFF81002006), ("before it", 0xFFFFFFFF80FFFFFE)])
def test_data_that_is_near_is_an_address_all_the_same(name: str, address: int) -> None:
    kernel = Kernel("x86_64", 0, 0)
    function_difference = ComparedCode(profile(kernel, []), profile(kernel, [Step(name)])).function("f")
    assert [instruction.text for instruction in function_difference.instructions] == [
        f"mov eax, dword ptr [{address:#x}]"
    ]


def test_a_jump_into_another_function_is_the_same_wherever_in_it() -> None:
    """As code before its target may have changed; what it leads to is compared there."""
    before, after = profile(HERE, [Step("call into the middle")]), profile(MOVED, [Step("call further in")])
    assert not ComparedCode(before, after).function("f").instructions
    assert ComparedCode(before, profile(MOVED, [Step("call")])).function("f").instructions


def test_another_function_that_is_called_is_a_change() -> None:
    before, after = profile(HERE, [Step("push"), Step("call")]), profile(MOVED, [Step("push"), Step("tail call")])
    function_difference = ComparedCode(before, after).function("f")
    assert [
        (instruction.text, instruction.before, instruction.after) for instruction in function_difference.instructions
    ] == [
        ("call called1", Fraction(1), None),
        ("jmp called2", None, Fraction(1)),
    ]


def test_another_constant_is_a_change_and_another_address_is_none() -> None:
    function_difference = ComparedCode(
        profile(HERE, [Step("constant")]), profile(HERE, [Step("other constant")])
    ).function("f")
    assert [instruction.change for instruction in function_difference.instructions] == [-1, 1]
    assert not ComparedCode(profile(HERE, [Step("load")]), profile(MOVED, [Step("load")])).function("f").instructions


def test_a_symbol_with_as_many_other_instructions_is_not_equal() -> None:
    before, after = profile(HERE, [Step("push"), Step("nop")]), profile(MOVED, [Step("push"), Step("field")])
    compared = with_code(difference(before, after))
    assert (list(compared.symbols), compared.equal, list(compared.other_code)) == ([], 2, ["f"])


def test_a_clone_is_compared_with_its_function() -> None:
    before, after = profile(HERE, [Step("push")]), profile(MOVED, [Step("push"), Step("nop")], name="f.isra.0")
    compared = difference(before, after)
    assert [(symbol.title, symbol.change) for symbol in compared.symbols] == [("f -> f.isra.0", Fraction(1))]
    function_difference = ComparedCode(before, after).function("f")
    assert [(instruction.text, instruction.after_offset) for instruction in function_difference.instructions] == [
        ("nop", 1)
    ]
    assert ComparedCode(before, after).function("f.isra.0") == function_difference


def test_functions_of_one_name_may_change_places() -> None:
    def two(first: int, second: int) -> CellProfile:
        made = [
            SymbolProfile(name="f", place="kernel", address=address, instructions=(InstructionCount(0, code, 10),))
            for address, code in ((first, "55"), (second, "90"))
        ]
        return CellProfile(cell="a/b", arch="i386", calls=10, has_details=False, symbols=tuple(made))

    before, after = two(0xC1000000, 0xC1000100), two(0xC1000300, 0xC1000200)
    assert not ComparedCode(before, after).function("f").instructions
    assert with_code(difference(before, after)).equal == 1


def test_a_jump_that_is_not_taken_is_the_same_where_its_target_is_executed_by_one_side_only() -> None:
    before, after = profile(HERE, [Step("conditional")]), profile(MOVED, [Step("conditional")])
    without = before.model_copy(update={"symbols": before.symbols[:1]})
    assert not ComparedCode(without, after).function("f").instructions


def test_a_module_s_code_may_refer_to_anything_outside() -> None:
    def module(base: int) -> CellProfile:
        load = b"\xa1" + (base + 0x2000).to_bytes(4, "little")
        call = b"\xe8" + ((0xC1000000 - base - 10) % (1 << 32)).to_bytes(4, "little")
        code = (InstructionCount(0, load.hex(), 10), InstructionCount(5, call.hex(), 10))
        handler = SymbolProfile(name="handler", place="module", module="lab", address=0, instructions=code)
        kernel = SymbolProfile(
            name="k", place="kernel", address=0xC1000000, instructions=(InstructionCount(0, "c3", 10),)
        )
        return CellProfile(
            cell="a/b",
            arch="i386",
            calls=10,
            has_details=False,
            symbols=(handler, kernel),
            names={"lab": {(0xC1000000 - base) % (1 << 32): "k"}},
        )

    compared = ComparedCode(module(0xD0846000), module(0xCF001000))
    assert not compared.function("handler").instructions
    (_, call) = ComparedCode(EMPTY, module(0xCF001000)).function("handler").instructions
    assert call.text == "call k"
    assert compared.function("handler [lab]").equal == 2


def test_names_that_mean_nothing_or_too_much_are_refused() -> None:
    compared = ComparedCode(profile(HERE, [Step("push")]), profile(MOVED, [Step("push")]))
    with pytest.raises(UsageError, match="calls of neither cell execute 'called3'") as error:
        compared.function("called3")
    assert error.value.hint.startswith("did you mean called")
    with pytest.raises(UsageError, match="instructions of i386 and of x86_64 cannot be compared"):
        ComparedCode(profile(HERE, [Step("push")]), profile(Kernel("x86_64", 0, 0), [Step("push")])).function("f")


def test_equal_code_of_a_long_function_is_matched_however_frequent() -> None:
    """SequenceMatcher begins at no frequent element of a long sequence, unless it is told to."""
    frequent = [Step(name) for name in ("push", "nop", "field", "locked") for _ in range(60)]
    before = profile(HERE, [Step("constant"), *frequent, Step("call")])
    after = profile(MOVED, [Step("other constant"), *frequent, Step("tail call")])
    function_difference = ComparedCode(before, after).function("f")
    assert (len(function_difference.instructions), function_difference.equal) == (4, len(frequent))


# Are a function's instructions shown with their counts?

PROFILE = CellProfile(
    cell="a/b",
    arch="i386",
    calls=10,
    has_details=False,
    symbols=(
        SymbolProfile(
            name="kprobe_func",
            place="module",
            module="lab_kprobe",
            address=0x40,
            instructions=(
                InstructionCount(0, "55", 10),
                InstructionCount(1, "89e5", 5),
                InstructionCount(0x12, "ff", 20),
            ),
        ),
        SymbolProfile(
            name="probed",
            place="kernel",
            address=0xC1000000,
            instructions=(InstructionCount(0, "e8fb0f0000", 10), InstructionCount(5, "7403", 10)),
        ),
    ),
    names={"": {0xC1001000: "get_kprobe", 0xC100000A: "probed+0xa"}},
)


@pytest.mark.parametrize("name", ["kprobe_func", "kprobe_func [lab_kprobe]"])
def test_each_instruction_has_its_count_per_call(name: str) -> None:
    assert annotated([PROFILE], name).splitlines() == [
        "a/b",
        "kprobe_func [lab_kprobe+0x40]",
        "  1  +0x0   55    push ebp",
        "0.5  +0x1   89e5  mov ebp, esp",
        "  2  +0x12  ff    .byte ff",
    ]


def test_what_instructions_lead_to_has_its_name() -> None:
    assert annotated([PROFILE], "probed").splitlines()[2:] == [
        "1  +0x0  e8fb0f0000  call get_kprobe",
        "1  +0x5  7403        je +0xa",
    ]


def test_a_function_that_was_not_executed_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="do not execute 'kprobe_fun'") as error:
        annotated([PROFILE], "kprobe_fun")
    assert error.value.hint == "did you mean kprobe_func?"


def test_cells_that_do_not_execute_it_are_passed_over() -> None:
    without = PROFILE.model_copy(update={"cell": "none", "symbols": PROFILE.symbols[1:]})
    assert annotated([without, PROFILE], "kprobe_func") == annotated([PROFILE], "kprobe_func")
    with pytest.raises(UsageError, match="calls of none of the 2 cells execute 'vfs_read'"):
        annotated([without, PROFILE], "vfs_read")


def test_a_bpf_program_has_offsets_from_its_beginning_and_jumps_to_places_in_it() -> None:
    program = SymbolProfile(
        name="BPF program on_open",
        place="generated",
        address=0xFFFFFFFFC0000680,
        instructions=(
            InstructionCount(0, "7402", 100, 0, 0, 100),
            InstructionCount(4, "31c0", 100),
            InstructionCount(6, "e9f5ffff3f", 100, 0, 0, 100),
        ),
    )
    profile = CellProfile(cell="a/b/c", arch="x86_64", calls=100, has_details=True, symbols=(program,))
    assert annotated([profile], "BPF program on_open").splitlines()[2:] == [
        "1  +0x0  7402        je +0x4",
        "1  +0x4  31c0        xor eax, eax",
        "1  +0x6  e9f5ffff3f  jmp 0x680",
    ]
