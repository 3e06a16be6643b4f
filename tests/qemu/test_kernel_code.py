# SPDX-License-Identifier: GPL-2.0-only
"""Are the symbols and the code that are read from Debian's images those of their guests?"""

from __future__ import annotations

import pytest
from elsewhere import ELSEWHERE

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.machine_code import decoded
from orchestrator.run.ready_guest import ReadyGuest

GUESTS = [
    pytest.param(kernel, marks=[pytest.mark.guest(kernel=kernel, cpu=cpu, timing="instructions"), *marks])
    for kernel, cpu, marks in (("debian-686", "pentium4", []), ("debian-amd64", "xeon-e5410", [ELSEWHERE]))
]


@pytest.mark.parametrize("kernel", GUESTS)
def test_the_symbols_in_an_image_are_those_of_its_guest(ready: ReadyGuest, kernel: str) -> None:
    code = ready.artifacts.kernel.code
    assert code is not None
    listed = ready.guest.get("/proc/kallsyms").decode().splitlines()
    own = [line for line in listed if "\t[" not in line]
    assert [f"{symbol.address:0{2 * code.word}x} {symbol.type} {symbol.name}" for symbol in code.symbols] == own


@pytest.mark.parametrize("kernel", GUESTS)
def test_instructions_in_the_image_are_those_in_memory(ready: ReadyGuest, kernel: str) -> None:
    """The kernel has patched itself: of all its code, only the places that are known for that may differ."""
    code = ready.artifacts.kernel.code
    assert code is not None
    start, size = code.function("vfs_read"), 1 << 16
    assert start is not None
    memory = ready.guest.read_memory(start, size)
    functions = [
        symbol.address
        for symbol in code.symbols
        if symbol.type in "tT" and start <= symbol.address < start + size - 4096
    ]
    assert len(functions) > 20
    differing = 0
    for function in functions:
        end = code.following(function)
        assert end is not None
        live = set(_starts(memory[function - start : end - start], function, code))
        for address, behind in _starts(code.read(function, end - function), function, code):
            differs = (address, behind) not in live
            assert not differs or code.is_patched(address, behind), hex(address)
            differing += differs
    # Retpolines and returns are patched all over x86_64, on i386 a few instructions of certain CPUs.
    assert differing or kernel == "debian-686"


def _starts(content: bytes, address: int, code: KernelCode) -> list[tuple[int, int]]:
    return [(instruction.address, instruction.end) for instruction in decoded(content, address, code.word)]


@pytest.mark.guest(kernel="debian-686", cpu="pentium4", timing="instructions")
def test_debians_i386_kernel_starts_flat(ready: ReadyGuest) -> None:
    """What runs is what is in the package, without its decompressor."""
    kernel = ready.artifacts.kernel
    assert kernel.packaged is not None
    assert kernel.packaged.name == f"vmlinuz-{kernel.release}"
    assert kernel.image.stat().st_size > 2 * kernel.packaged.stat().st_size
    assert str(kernel.image) in ready.guest.command_line
    assert ready.guest.run(["uname", "-r"]).text.strip() == kernel.release
