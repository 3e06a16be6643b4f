# SPDX-License-Identifier: GPL-2.0-only
"""Does the counting plugin put an instruction into the class that its name is of?"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from itertools import takewhile

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from orchestrator.artifacts.machine_code import decoded
from orchestrator.paths import data_dir
from orchestrator.profile.code.instruction_classes import LOCKED, executed_classes
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile

ClassOf = Callable[[bytes], str | None]
_PREFIXES = [b"\x66", b"\x67", b"\x65", b"\x2e", b"\xf0", b"\xf2", b"\xf3", b"\x48"]


@pytest.fixture(scope="module")
def class_of(tmp_path_factory: pytest.TempPathFactory) -> ClassOf:
    """The plugin's function, as the host's compiler makes it."""
    library = tmp_path_factory.mktemp("plugin") / "classes.so"
    sources = [data_dir("images") / "plugin" / name for name in ("classes.c", "stacks.c")]
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, *sources], check=True, timeout=120)
    loaded = ctypes.CDLL(str(library))
    names = (ctypes.c_char_p * 11).in_dll(loaded, "class_names")

    def named(code: bytes) -> str | None:
        found = loaded.class_of(code, len(code))
        return names[found].decode() if found < len(names) else None

    return named


def by_name(code: bytes, word: int) -> str | None:
    """The class by capstone's name of the instruction; None of no class."""
    symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=(InstructionCount(0, code.hex(), 1),))
    arch = "i386" if word == 4 else "x86_64"
    profile = CellProfile(cell="a", arch=arch, calls=1, has_details=False, symbols=(symbol,))
    found = [name for name, number in executed_classes(profile).classes.items() if number]
    assert len(found) <= 1 or LOCKED in found
    return found[-1] if found else None


def is_written_by_compilers(code: bytes) -> bool:
    """False with a REX prefix before another prefix, which CPUs ignore, or a breakpoint with prefixes."""
    rex, others = range(0x40, 0x50), b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3"
    prefixes = list(takewhile(lambda byte: byte in rex or byte in others, code))
    return not (any(byte in rex for byte in prefixes[:-1]) or (prefixes and code[len(prefixes) :] == b"\xcc"))


@given(
    prefixes=st.lists(st.sampled_from(_PREFIXES), max_size=3),
    rest=st.binary(min_size=15, max_size=15),
    word=st.sampled_from([4, 8]),
)
@example(prefixes=[], rest=b"\xcc".ljust(15), word=8)
@example(prefixes=[], rest=b"\xcd\x80".ljust(15), word=4)
@example(prefixes=[b"\x48"], rest=b"\xcf".ljust(15), word=8)
@example(prefixes=[], rest=b"\x0f\x05".ljust(15), word=8)
@example(prefixes=[b"\x48"], rest=b"\x0f\x07".ljust(15), word=8)
@example(prefixes=[], rest=b"\x0f\x34".ljust(15), word=4)
@example(prefixes=[], rest=b"\x0f\x35".ljust(15), word=4)
@example(prefixes=[b"\xf3"], rest=b"\xc3".ljust(15), word=8)
@example(prefixes=[], rest=b"\xff\xd0".ljust(15), word=8)
@example(prefixes=[], rest=b"\xff\x1d".ljust(15), word=4)
@example(prefixes=[], rest=b"\x0f\x01\xf9".ljust(15), word=8)
@example(prefixes=[], rest=b"\x87\x07".ljust(15), word=8)
@example(prefixes=[], rest=b"\x87\xc7".ljust(15), word=8)
@example(prefixes=[b"\xf0", b"\x48"], rest=b"\x0f\xb1\x0f".ljust(15), word=8)
@example(prefixes=[], rest=b"\x9c".ljust(15), word=4)
@example(prefixes=[b"\x66"], rest=b"\x9d".ljust(15), word=4)
def test_the_class_by_bytes_is_the_class_by_name(
    class_of: ClassOf, prefixes: list[bytes], rest: bytes, word: int
) -> None:
    content = b"".join(prefixes) + rest
    first = next(decoded(content[:15], 0, word), None)
    assume(first is not None)
    assert first is not None
    code = content[: first.size]
    assume(is_written_by_compilers(code))
    assert class_of(code) == by_name(code, word)
