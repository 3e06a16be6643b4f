# SPDX-License-Identifier: GPL-2.0-only
"""Is a function's first own instruction found, whatever the compiler and the kernel put before it?"""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
from built_code import build_tree
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.artifacts.dispatch import UnknownDispatchError, dispatched
from orchestrator.artifacts.function_entry import LONGEST, entry_offset, entry_places
from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree

ENDBR64, ENDBR32, SEALED, SEALED_LATER = "f30f1efa", "f30f1efb", "660f1f00", "0f1f40d6"


NOP64, NOP32 = "0f1f440000", "3e8d742600"


BODY = "5589e55756"


SOURCE = Path(__file__).parent / "entries" / "entries.S"


@pytest.mark.parametrize(
    ("code", "places"),
    [
        (BODY * 2, {0}),
        (ENDBR64 + BODY, {0, 4}),
        (ENDBR32 + BODY, {0, 4}),
        (SEALED + BODY, {0, 4}),
        (SEALED_LATER + NOP64, {0, 4, 9}),
        (NOP64 + BODY, {0, 5}),
        (NOP32 + BODY, {0, 5}),
        ("6666666690" + BODY, {0, 5}),
        ("3e8d442000" + BODY, {0, 5}),
        ("6666666655" + BODY, {0}),
        (ENDBR64 + NOP64, {0, 4, 9}),
        (ENDBR32 + NOP32, {0, 4, 9}),
        (SEALED + NOP64, {0, 4, 9}),
        ("", {0}),
    ],
)
def test_operands_in_memory_are_found(code: str, places: set[int]) -> None:
    assert entry_places(bytes.fromhex(code)) == places


@given(st.binary(max_size=16))
def test_any_code_has_an_entry(code: bytes) -> None:
    places = entry_places(code)
    assert 0 in places
    assert max(places) in (0, 4, 5, 9)
    assert max(places) <= LONGEST


@pytest.fixture(scope="module", params=[32, 64])
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build tree with an image that cannot boot, and its list of symbols."""
    folder = tmp_path_factory.mktemp("tree")
    image = folder / "vmlinux"
    emulation = "elf_i386" if request.param == 32 else "elf_x86_64"
    argv = ["gcc", f"-m{request.param}", "-nostdlib", "-static", f"-Wl,-m,{emulation},-Ttext=0x1000000,--build-id=none"]
    subprocess.run([*argv, "-o", image, SOURCE], check=True, timeout=600)
    listed = subprocess.run(["nm", "-n", image], check=True, timeout=600, capture_output=True, text=True)
    (folder / "System.map").write_text(listed.stdout)
    return folder


@pytest.mark.parametrize(
    ("symbol", "offset"),
    [
        ("plain", 0),
        ("with_endbr", 4),
        ("traced", 5),
        ("traced_with_endbr", 9),
        ("nopped_with_endbr", 9),
        ("calling_something_else", 0),
        ("no_such_function", None),
    ],
)
def test_what_was_built(tree: Path, symbol: str, offset: int | None) -> None:
    code = code_of_tree(tree)
    assert code is not None
    assert entry_offset(code, symbol) == offset


def test_a_tree_without_its_image_or_with_a_damaged_one(tree: Path, tmp_path: Path) -> None:
    assert code_of_tree(tmp_path) is None
    (tmp_path / "System.map").write_bytes((tree / "System.map").read_bytes())
    assert code_of_tree(tmp_path) is None
    for content in (b"", b"\x7fELF", (tree / "vmlinux").read_bytes()[:70]):
        (tmp_path / "vmlinux").write_bytes(content)
        assert code_of_tree(tmp_path) is None


# Is a number's function found, whatever the compiler makes of the dispatch?

SOURCES = Path(__file__).parent / "dispatch"


CALLS = {0, 1, 2, 3, 5, 6, 7, 9, 20, 21, 22, 40, 41, 43}


def built(folder: Path, source: str, word: int, *options: str) -> KernelCode:
    code = code_of_tree(build_tree(folder, SOURCES / source, word, *options))
    assert code is not None
    assert code.word == word
    return code


@pytest.mark.parametrize("word", [4, 8])
@pytest.mark.parametrize(
    "options",
    [
        [],  # a table of jumps, tail calls
        ["-fno-jump-tables"],
        ["-fno-optimize-sibling-calls", "-fno-omit-frame-pointer"],
        ["-fno-jump-tables", "-fno-optimize-sibling-calls", "-fcf-protection=branch"],
        ["-O1"],
        ["-Os"],
    ],
    ids=" ".join,
)
def test_a_switch(tmp_path: Path, word: int, options: list[str]) -> None:
    code = built(tmp_path, "switch.c", word, *options)
    for number in (*range(60), 1000, 0xFFFFFFFF):
        assert dispatched(code, "i386", number) == f"__ia32_sys_call{number if number in CALLS else 99}"


def test_tables(tmp_path: Path) -> None:
    code = built(tmp_path, "table.c", 8)
    assert [dispatched(code, "x86_64", number) for number in (0, 1)] == ["__ia32_sys_zero", "__ia32_sys_one"]
    assert [dispatched(code, "i386", number) for number in (0, 1)] == ["__ia32_sys_one", "__ia32_sys_zero"]
    with pytest.raises(UnknownDispatchError, match=r"^ia32_sys_call_table has no entry 2$"):
        dispatched(code, "i386", 2)


def test_what_cannot_be_read(tmp_path: Path) -> None:
    code = built(tmp_path, "table.c", 4)
    with pytest.raises(UnknownDispatchError, match="neither a function x64_sys_call nor a table sys_call_table"):
        dispatched(dataclasses.replace(code, word=8, symbols=()), "x86_64", 0)
    switch = built(tmp_path, "switch.c", 4)
    start = switch.function("ia32_sys_call")
    assert start is not None
    # A compiler that computes the target in registers of its own, from what the image does not say: jmp *%ecx.
    place = switch.image.index(switch.read(start, 16))
    changed = switch.image[:place] + b"\xff\xe1" + switch.image[place + 2 :]
    with pytest.raises(UnknownDispatchError, match=r"^what jmp at 0x[0-9a-f]+ depends on is not known$"):
        dispatched(dataclasses.replace(switch, image=changed), "i386", 0)


def test_flags_of_an_unknown_instruction_are_not_those_of_the_compare_before(tmp_path: Path) -> None:
    switch = built(tmp_path, "switch.c", 4)
    start = switch.function("ia32_sys_call")
    assert start is not None
    place = switch.image.index(switch.read(start, 16))
    # cmp $1,%edx; and $4,%edx; je .+5: whether it jumps follows from the and.
    code = bytes.fromhex("83fa0183e2047405")
    changed = dataclasses.replace(switch, image=switch.image[:place] + code + switch.image[place + len(code) :])
    with pytest.raises(UnknownDispatchError, match=r"^what je at 0x[0-9a-f]+ depends on is not known$"):
        dispatched(changed, "i386", 1)
