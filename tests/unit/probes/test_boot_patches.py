# SPDX-License-Identifier: GPL-2.0-only
"""Which code may a listed place of the kernel's text have after its boot?"""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from built_code import build_tree

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.errors import EvidenceError
from orchestrator.probes.boot_patches import booted_text

SOURCE = Path(__file__).parent / "text" / "text.S"
WORDS = (4, 8)
NOP = {4: "3e8d742600", 8: "0f1f440000"}
RETURN, CALL, JUMP = "c3cccccccc", 0xE8, 0xE9


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, KernelCode]:
    """The same text for pointers of both sizes."""
    return {word: built(tmp_path_factory.mktemp(f"word{word}"), word) for word in WORDS}


def built(folder: Path, word: int, *options: str) -> KernelCode:
    code = code_of_tree(build_tree(folder, SOURCE, word, *options))
    assert code is not None
    return code


class Booted:
    """The text of a kernel in memory, at first that of its image."""

    def __init__(self, code: KernelCode) -> None:
        self.code, self.start = code, address(code, "_stext")
        self.image = code.read(self.start, address(code, "_etext") - self.start)
        self.live = bytearray(self.image)

    def at(self, name: str) -> int:
        return address(self.code, name) - self.start

    def put(self, name: str, content: bytes) -> None:
        self.live[self.at(name) : self.at(name) + len(content)] = content

    def branch(self, name: str, opcode: int, target: str) -> None:
        self.put(name, struct.pack("<Bi", opcode, self.at(target) - self.at(name) - 5))

    def patched(self) -> dict[str, int]:
        """The kinds of places that were patched. Raises AssertionError unless that explains all of the text."""
        found = booted_text(self.code, self.start, bytes(self.live))
        assert found.text == self.live
        return dict(found.patched)

    def refused(self) -> bool:
        """Whether what differs from the image is not explained, and stays as in the image."""
        return booted_text(self.code, self.start, bytes(self.live)).text == self.image


def address(code: KernelCode, name: str) -> int:
    found = code.address(name)
    assert found is not None, name
    return found


@pytest.mark.parametrize("word", WORDS)
def test_a_text_as_its_image_is_not_patched(codes: dict[int, KernelCode], word: int) -> None:
    assert Booted(codes[word]).patched() == {}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("kind", "place", "content"),
    [
        ("traced function", "traced", "NOP"),
        ("lock prefix", "locked", "3e"),
        ("endbr", "sealed", "660f1f00"),
        ("endbr", "sealed", "0f1f40d6"),
        ("return", "returning", RETURN),
        ("return", "last_return", RETURN),
        ("retpoline", "thunk_call", "ffd0909090"),
        ("retpoline", "thunk_call", "0faee8ffd0"),
        ("retpoline", "thunk_jump", "ffe0cc9090"),
        ("retpoline", "thunk_condition", "7504ffe0cc90"),
        ("paravirtual call", "hypervisor", "909090909090"),
        ("paravirtual call", "hypervisor", "NOP90"),
        ("alternative", "alternative", "NOP"),
        ("alternative", "padded", "0faef09090"),
        ("alternative", "padded", "0faef06690"),
        ("static call", "calling_nothing", "NOP"),
    ],
)
def test_a_place_may_have_the_code_of_its_kind(
    codes: dict[int, KernelCode], word: int, kind: str, place: str, content: str
) -> None:
    booted = Booted(codes[word])
    booted.put(place, bytes.fromhex(content.replace("NOP", NOP[word])))
    assert booted.patched() == {kind: 1}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("place", "content"),
    [
        ("traced", "cc"),
        ("traced", "NOPcc"),
        ("locked", "cc"),
        ("locked", "3ecc"),
        ("sealed", "cc"),
        ("sealed", "90909090"),
        ("returning", "cc"),
        ("returning", "c390909090"),
        ("thunk_call", "cc"),
        ("thunk_call", "ffd1909090"),
        ("thunk_call", "ffe0909090"),
        ("thunk_call", "ffd0cc9090"),
        ("thunk_jump", "ffd0909090"),
        ("thunk_jump", "ffe09090cc"),
        ("thunk_condition", "7404ffe0cc90"),
        ("thunk_condition", "7502ffe0cc90"),
        ("hypervisor", "cc"),
        ("hypervisor", "NOPcc"),
        ("hypervisor", "e80000000090"),
        ("alternative", "cc"),
        ("alternative", "eb00909090"),
        ("padded", "0faee89090"),
        ("padded", "0faef0cc90"),
        ("padded", "2e0faef090"),
        ("calling", "NOP"),
        ("calling", "cc"),
        ("calling_nothing", "66664831c0"),
        ("leaving", RETURN),
        ("__SCT__chosen", "cc"),
        ("__SCT__chosen", "e900000000"),
        ("plain", "cc"),
        ("plain", "90"),
    ],
)
def test_anything_else_is_none_of_its_boots(codes: dict[int, KernelCode], word: int, place: str, content: str) -> None:
    booted = Booted(codes[word])
    booted.put(place, bytes.fromhex(content.replace("NOP", NOP[word])))
    found = booted_text(booted.code, booted.start, bytes(booted.live))
    assert found.text != booted.live


@pytest.mark.parametrize("word", WORDS)
def test_a_byte_beside_a_place_is_not_part_of_it(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    booted.put("traced", bytes.fromhex(NOP[word] + "90"))
    found = booted_text(booted.code, booted.start, bytes(booted.live))
    assert [at for at, (old, new) in enumerate(zip(found.text, booted.live, strict=True)) if old != new] == [
        booted.at("traced") + 5
    ]


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("kind", "place", "opcode", "target", "accepted"),
    [
        ("return", "returning", JUMP, "srso_return_thunk", True),
        ("return", "returning", JUMP, "first", False),
        ("return", "returning", CALL, "srso_return_thunk", False),
        ("alternative", "alternative", JUMP, "fast", True),
        ("alternative", "alternative", JUMP, "first", False),
        ("alternative", "alternative", CALL, "fast", False),
        ("paravirtual call", "hypervisor", CALL, "first", True),
        ("paravirtual call", "hypervisor", JUMP, "first", False),
        ("static call", "__SCT__chosen", JUMP, "second", True),
        ("static call", "__SCT__chosen", CALL, "second", False),
        ("static call", "__SCT__unset", JUMP, "second", True),
        ("static call", "__SCT__tp_func_event", JUMP, "second", False),
        ("static call", "calling", CALL, "first", True),
        ("static call", "calling", CALL, "second", False),
        ("static call", "calling", JUMP, "first", False),
        ("static call", "leaving", JUMP, "first", True),
        ("traced function", "traced", CALL, "first", False),
        ("none", "plain", JUMP, "first", False),
    ],
)
def test_a_branch_leads_to_where_its_place_may(
    codes: dict[int, KernelCode], word: int, kind: str, place: str, opcode: int, target: str, accepted: bool
) -> None:
    booted = Booted(codes[word])
    if place == "hypervisor":
        booted.put(place, b"\x90" * 6)
    booted.branch(place, opcode, target)
    if accepted:
        assert booted.patched() == {kind: 1}
    else:
        assert booted.refused()


@pytest.mark.parametrize("word", WORDS)
def test_a_short_jump_is_the_alternatives_long_one(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    nop = bytes.fromhex({4: "8d7600", 8: "0f1f00"}[word])
    distance = booted.at("fast") - booted.at("alternative") - 2
    booted.put("alternative", bytes([0xEB, distance]) + nop)
    assert booted.patched() == {"alternative": 1}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("trampoline", "call", "jump"),
    [(RETURN, "NOP", RETURN), ("__static_call_return0", "66664831c0", None), ("second", "second", "second")],
)
def test_places_of_a_static_call_agree_with_its_trampoline(
    codes: dict[int, KernelCode], word: int, trampoline: str, call: str, jump: str | None
) -> None:
    booted = Booted(codes[word])

    def put(place: str, opcode: int, content: str) -> None:
        if content in (RETURN, "NOP", "66664831c0"):
            booted.put(place, bytes.fromhex(content.replace("NOP", NOP[word])))
        else:
            booted.branch(place, opcode, content)

    put("__SCT__chosen", JUMP, trampoline)
    put("calling", CALL, call)
    put("leaving", JUMP, jump or trampoline)
    assert booted.patched() == {"static call": 3}


@pytest.mark.parametrize("word", WORDS)
def test_static_calls_side_by_side_are_two(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    for place in ("calling_twice", "calling_again"):
        booted.put(place, bytes.fromhex(NOP[word]))
    assert booted.patched() == {"static call": 2}


@pytest.mark.parametrize("word", WORDS)
def test_a_static_call_that_keeps_a_byte_in_its_middle_is_one(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    at = booted.at("calling_at_a_distance")
    booted.put("calling_at_a_distance", bytes.fromhex(NOP[word]))
    assert booted.image[at + 1] == booted.live[at + 1]
    assert booted.patched() == {"static call": 1}


@pytest.mark.parametrize("word", WORDS)
def test_an_int3_is_never_part_of_the_boot(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    for place, content in {
        "traced": NOP[word],
        "locked": "3e",
        "sealed": "660f1f00",
        "returning": RETURN,
        "thunk_call": "ffd0909090",
        "thunk_jump": "ffe0cc9090",
        "thunk_condition": "7504ffe0cc90",
        "hypervisor": "909090909090",
        "alternative": NOP[word],
        "padded": "0faef09090",
        "__SCT__chosen": RETURN,
        "calling": NOP[word],
        "leaving": RETURN,
    }.items():
        booted.put(place, bytes.fromhex(content))
    assert sum(booted.patched().values()) == 13
    for at in (at for at, byte in enumerate(bytes(booted.live)) if byte != 0xCC):
        live = bytes([*booted.live[:at], 0xCC, *booted.live[at + 1 :]])
        assert booted_text(booted.code, booted.start, live).text != live, hex(at)


@pytest.mark.parametrize("word", WORDS)
def test_alternatives_of_a_newer_form_are_read(tmp_path: Path, word: int) -> None:
    # 84 bytes are 6 entries of this form, and 7 of Linux 6.1's.
    booted = Booted(built(tmp_path, word, "-DFLAGS=2", "-DTHIRD_SIZE=0"))
    assert {(one.address - booted.start, one.size, one.replacement_size) for one in booted.code.alternatives} == {
        (booted.at("alternative"), 5, 5),
        (booted.at("alternative"), 5, 0),
        (booted.at("padded"), 5, 3),
    }
    booted.put("padded", bytes.fromhex("0faef09090"))
    assert booted.patched() == {"alternative": 1}


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("content", "accepted"),
    [
        ("eb0e" + "cc" * 14, True),
        ("e90b000000" + "cc" * 11, True),
        ("eb0eeb0c" + "cc" * 12, True),
        ("eb0d" + "cc" * 14, False),
        ("eb0f" + "cc" * 14, False),
        ("cc" * 16, False),
        ("90cc" + "90" * 14, False),
        ("e80b000000" + "cc" * 11, False),
    ],
)
def test_a_jump_over_int3s_to_the_end_is_a_long_nop(tmp_path: Path, word: int, content: str, accepted: bool) -> None:
    """Of nested alternatives, the inner one has half the size; the kernel takes the larger for both."""
    booted = Booted(built(tmp_path, word, "-DFLAGS=2", "-DTHIRD_SIZE=0", "-DNEWER"))
    assert [one.size for one in booted.code.alternatives][-2:] == [16, 16]
    booted.put("quiet", bytes.fromhex(content))
    assert booted.patched() == {"alternative": 1} if accepted else booted.refused()


@pytest.mark.parametrize("word", WORDS)
def test_a_newer_call_of_the_hypervisors_is_direct_or_nothing(tmp_path: Path, word: int) -> None:
    code = built(tmp_path, word, "-DFLAGS=2", "-DTHIRD_SIZE=0", "-DNEWER")
    assert not code.paravirtual
    for opcode, accepted in ((CALL, True), (JUMP, False)):
        booted = Booted(code)
        booted.put("hypervisor", b"\x90" * 6)
        assert booted.patched() == {"paravirtual call": 1}
        booted.branch("hypervisor", opcode, "first")
        assert booted.patched() == {"paravirtual call": 1} if accepted else booted.refused()


@pytest.mark.parametrize("word", WORDS)
def test_a_long_jump_that_became_a_short_one_has_int3s_behind(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    distance = booted.at("fast") - booted.at("alternative") - 2
    booted.put("alternative", bytes([0xEB, distance, 0xCC, 0xCC, 0xCC]))
    assert booted.patched() == {"alternative": 1}
    booted.put("alternative", bytes([0xEB, distance + 2, 0xCC, 0xCC, 0xCC]))
    assert booted.refused()


@pytest.mark.parametrize("word", WORDS)
def test_a_constant_is_the_same_in_all_its_places(codes: dict[int, KernelCode], word: int) -> None:
    booted = Booted(codes[word])
    value = bytes(range(1, word + 1))
    booted.put("constant", value)
    assert booted.refused()
    booted.put("same_constant", value)
    booted.live[booted.at("shift") + 2] = 20
    assert booted.patched() == {"runtime constant": 3}
    booted.live[booted.at("shift")] = 0xCC
    assert booted_text(booted.code, booted.start, bytes(booted.live)).text != booted.live


@pytest.mark.parametrize("word", WORDS)
def test_alternatives_of_an_unknown_form_explain_nothing(tmp_path: Path, word: int) -> None:
    booted = Booted(built(tmp_path, word, "-DFLAGS=0", "-DTHIRD_SIZE=1"))
    assert not booted.code.alternatives
    booted.put("padded", bytes.fromhex("0faef09090"))
    assert booted.refused()


@pytest.mark.parametrize("word", WORDS)
def test_a_replacement_that_the_image_has_not_is_no_nop(tmp_path: Path, word: int) -> None:
    booted = Booted(built(tmp_path, word, "-DREPLACEMENT=_etext+0x1000000"))
    booted.put("padded", bytes.fromhex("9090909090"))
    assert booted.refused()


def test_another_kernels_image_has_no_such_text(codes: dict[int, KernelCode]) -> None:
    booted = Booted(codes[4])
    with pytest.raises(EvidenceError, match="image has no 4096 bytes of text at 0xd0000000"):
        booted_text(booted.code, 0xD0000000, bytes(4096))
