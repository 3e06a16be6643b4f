# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest has left in its kernel's text told from what the kernel switches there for itself?"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import text_since
from orchestrator.probes.symbols import KALLSYMS, Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.results.contract import TextEvidence

SOURCE = Path(__file__).parent / "text" / "text.S"
NOP = {4: bytes.fromhex("3e8d742600"), 8: bytes.fromhex("0f1f440000")}


class Worked:
    """A guest whose memory is its kernel's image, with some bytes changed; ``late`` ones are back when it has slept.

    ``before`` is its text before the work, at ``span``.
    """

    def __init__(self, code: KernelCode) -> None:
        self.code = code
        self.machine = SimpleNamespace(timing="instructions")
        self.changed: dict[int, int] = {}
        self.late: dict[int, int] = {}
        self.slept = 0
        self.is_resting = False
        self.span = TextLayout.of_kernel(Symbols.of_image(code)).text[0]
        self.before = self.memory(self.span.start, self.span.size)

    def address(self, name: str) -> int:
        found = self.code.address(name)
        assert found is not None
        return found

    def put(self, name: str, content: bytes, offset: int = 0) -> None:
        start = self.address(name) + offset
        self.changed |= {start + at: byte for at, byte in enumerate(content)}

    def read_memory(self, address: int, size: int) -> bytes:
        assert self.is_resting, "an idle guest on the exact clock takes a processor of the host's"
        return self.memory(address, size)

    def memory(self, address: int, size: int) -> bytes:
        memory = bytearray(self.code.read(address, size))
        for at, byte in {**self.changed, **({} if self.slept else self.late)}.items():
            if address <= at < address + size:
                memory[at - address] = byte
        return bytes(memory)

    def pause(self) -> None:
        self.is_resting = True

    def resume(self) -> None:
        self.is_resting = False

    def succeed(self, argv: Sequence[str]) -> None:
        assert argv[0] == "sleep"
        self.slept += 1

    def get(self, source: str, *, largest: int) -> bytes:
        assert not self.is_resting, "a paused guest gives no answer"
        assert source == KALLSYMS
        return "".join(f"{symbol.address:08x} {symbol.type} {symbol.name}\n" for symbol in self.code.symbols).encode()

    def evidence(self) -> TextEvidence:
        return text_since(cast("Guest", self), self.before, self.span)

    def left(self) -> str:
        """What the error says of each place."""
        with pytest.raises(EvidenceError, match=r"^the cell left the kernel's text changed\n") as left:
            self.evidence()
        return "\n".join(left.value.detail)


def test_a_branch_that_its_table_has_may_be_switched(code: KernelCode) -> None:
    worked = Worked(code)
    worked.put("branch", NOP[code.word])
    evidence = worked.evidence()
    (switched,) = evidence.switched
    assert (switched.place, switched.key) == ("branch", "key")
    assert (switched.before[:2], switched.after) == ("e9", NOP[code.word].hex())
    start, end = worked.address("_stext"), worked.address("_etext")
    assert evidence.size == end - start
    assert evidence.digest == hashlib.sha256(worked.memory(start, end - start)).hexdigest()
    assert not worked.slept


def test_a_jump_that_its_table_has_not_is_left_behind(code: KernelCode) -> None:
    worked = Worked(code)
    # A nop of the image's that became a jump: the kernel's table has no such branch.
    worked.put("plain", struct.pack("<Bi", 0xE9, 0))
    assert " plain: 55 55 55 55 55 became e9 00 00 00 00" in worked.left()
    worked = Worked(code)
    worked.put("branch", struct.pack("<Bi", 0xE9, 1))
    assert " branch+0x1: 00 became 01" in worked.left()
    assert worked.slept == 10


def test_an_int3_is_left_behind_with_its_symbol_and_bytes(code: KernelCode) -> None:
    worked = Worked(code)
    worked.put("plain", b"\xcc", offset=9)
    assert f"{worked.address('plain') + 9:#x} plain+0x9: 55 became cc" in worked.left()


def test_a_tracepoint_that_is_enabled_is_left_behind(code: KernelCode) -> None:
    worked = Worked(code)
    worked.put("tracepoint", NOP[code.word])
    assert "(tracepoint event)" in worked.left()


def test_what_the_kernel_restores_in_the_background_is_waited_for(code: KernelCode) -> None:
    worked = Worked(code)
    worked.late = {worked.address("plain"): 0xE9}
    assert worked.evidence().switched == ()
    assert worked.slept == 1


def test_what_the_boot_has_patched_is_as_it_was(code: KernelCode) -> None:
    worked = Worked(code)
    worked.put("traced", NOP[code.word])
    worked.put("returning", b"\xe8")
    worked.before = worked.memory(worked.span.start, worked.span.size)
    assert worked.evidence().switched == ()
    worked.changed.clear()
    assert " returning: e8 became e9" in worked.left()


@pytest.mark.parametrize("by", [(-16, 0), (0, 16), (16, 16)])
def test_the_symbols_of_another_build_prove_nothing(code: KernelCode, by: tuple[int, int]) -> None:
    worked = Worked(code)
    worked.span = replace(worked.span, start=worked.span.start + by[0], end=worked.span.end + by[1])
    with pytest.raises(UnsupportedError, match="its vmlinux is of another build"):
        worked.evidence()
