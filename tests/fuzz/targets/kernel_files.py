# SPDX-License-Identifier: GPL-2.0-only
"""What a user's kernel, modules and programs are: images, ELF files, lists of symbols."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from fuzz.scratch import file, folder
from orchestrator.artifacts.flat_kernel import flat_image
from orchestrator.artifacts.function_entry import entry_offset
from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree, find_symbols, write_code
from orchestrator.artifacts.kernel_image import extract
from orchestrator.artifacts.module_files import module_info
from orchestrator.artifacts.modules import Module, check_parameter_names
from orchestrator.artifacts.program_code import find_in_library, find_in_program
from orchestrator.benchmarks.markers.code_size import read_object
from orchestrator.catalog.user_files import find_workload, modinfo
from orchestrator.errors import LabError
from orchestrator.probes.marker_code import marker_code
from orchestrator.probes.module_functions import code_at
from orchestrator.probes.point_check import wrong_point_reason

_SYSTEM_MAP = b"""\
c1000000 T _stext
c1000000 T getpid
c1000010 t getuid
c1000020 T _etext
c1000020 D __start_kernel_markers
c1000040 D __stop_kernel_markers
"""


def _code(name: str, symbols: bytes, image: bytes) -> KernelCode | None:
    """The code of a build tree with these files."""
    tree = folder() / name
    tree.mkdir(exist_ok=True)
    (tree / "System.map").write_bytes(symbols)
    (tree / "vmlinux").write_bytes(image)
    return code_of_tree(tree)


def read_image_symbols(data: bytes) -> None:
    """The list of symbols among a kernel's read-only data."""
    for word in (4, 8):
        find_symbols(data, word=word, absolute_percpu=word == 8)


def read_vmlinux(data: bytes) -> None:
    """A kernel's ELF image, beside a list of its symbols: its code, and what the kernel patches in it."""
    code = _code("tree", _SYSTEM_MAP, data)
    if code is not None:
        for symbol in ("getpid", "getuid"):
            wrong_point_reason(code, symbol, 3)
            entry_offset(code, symbol)
        code.is_patched(0, 1 << 64)
        marker_code(code)
    packaged = folder() / "packaged"
    packaged.mkdir(exist_ok=True)
    write_code(packaged, data, absolute_percpu=False)


def read_system_map(data: bytes) -> None:
    """System.map beside an image without code."""
    code = _code("listed", data, _EMPTY_ELF)
    assert code is not None
    wrong_point_reason(code, "getpid", 3)
    wrong_point_reason(code, "no_such_function", None)
    code.function("getpid")
    code.following(0xC1000000)


_EMPTY_ELF = b"\x7fELF\x01\x01\x01".ljust(16, b"\0") + bytes.fromhex(
    "0200030001000000" + "00" * 12 + "0000000034002000000028000000" + "0000"
)


def read_bzimage(data: bytes) -> None:
    """A compressed kernel: what is taken out of it, and the image that is made of both."""
    elf = extract(data)
    if elf is not None:
        flat_image(data, elf)


def read_kernel_elf(data: bytes) -> None:
    """A 32-bit kernel's ELF image, which is put behind setup sectors."""
    flat_image(bytes(1024), data)


def read_module(data: bytes) -> None:
    """A module or program that a user has built: its name, functions, parameters, markers, architecture."""
    module = file("module.ko", data)
    readers: Sequence[Callable[[], object]] = (
        lambda: code_at("module", module, lambda section: "0xc1000000"),
        lambda: read_object(module),
        lambda: module_info(module),
        lambda: check_parameter_names(Module("module", module, "", None), ["value"]),
        lambda: find_workload.__wrapped__(str(module)),
    )
    for read in readers:
        with suppress(LabError):
            read()
    modinfo(module)


def read_program(data: bytes) -> None:
    """A static program or a shared library that a user has built: a function of it, and a static probe point."""
    program = file("program", data)
    for name in ("workload", "lab:passed"):
        with suppress(LabError):
            find_in_library(program, "libmine.so", name, 1)
        find_in_program(program, name, 0)
