# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's own modules: files, dependencies, loading order, and functions."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from elftools.common.exceptions import ELFError
from elftools.elf.constants import SH_FLAGS
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.function_entry import NOPS5, TRACER_BYTES
from orchestrator.artifacts.kernel_code import CodePart, KernelCode, Symbol
from orchestrator.artifacts.kernel_image import unpacked
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.catalog.data import nearest
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import LabError

_LARGEST = 64 << 20  # bytes of a module; amdgpu.ko has 14 MB


def with_dependencies(modules: Path, names: Sequence[str]) -> list[Path]:
    """Modules below a kernel's folder, each after its dependencies (``depends=``). Built-in ones are left out."""
    return list(in_order(modules.rglob("*.ko*"), names).values())


def in_order(modules: Iterable[Path], names: Sequence[str]) -> Mapping[str, Path]:
    """The wanted modules' files by name, each after its dependencies among them. Raises LabError."""
    files = {module_name(path.name): path for path in modules}
    paths: dict[str, Path] = {}

    def add(name: str) -> None:
        path = files.pop(module_name(name), None)
        if path is not None:
            for dependency in module_info(path).get("depends", "").split(","):
                add(dependency)
            paths[module_name(name)] = path

    for name in names:
        add(name)
    return paths


def module_info(path: Path) -> dict[str, str]:
    """A module's .modinfo: ``depends``, ``vermagic``, ``license`` and so on. Raises LabError for any other file."""
    try:
        section = ELFFile(io.BytesIO(module_content(path))).get_section_by_name(".modinfo")
        if section is None:
            raise ELFError("it has no .modinfo")
        entries = section.data().decode(errors="replace").split("\0")
    except (OSError, *DAMAGED) as error:
        raise LabError(f"{path} is not a kernel module ({error})") from None
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def module_content(path: Path) -> bytes:
    """A module's file, decompressed if necessary. Raises OSError, and LabError for a damaged or too large one."""
    content = path.read_bytes()
    whole = content if path.suffix == ".ko" else unpacked(content, _LARGEST)
    if whole is None:
        raise LabError(f"{path} is not a kernel module: it is damaged, or larger than {_LARGEST >> 20} MiB")
    return whole


def unpacked_name(path: Path) -> str:
    """The file name without a compression suffix."""
    return f"{path.name.partition('.ko')[0]}.ko"


def module_name(text: str) -> str:
    """A module's name as the kernel lists it, from its file name: without suffixes, with underscores."""
    return text.partition(".ko")[0].replace("-", "_")


BUILT_IN = "modules.builtin"


def module_files(kernel: Kernel) -> Mapping[str, Path]:
    """The files of a kernel's modules by relative path, packaged or built. Raises LabError for a damaged list."""
    if kernel.modules.is_dir():
        return {str(file.relative_to(kernel.modules)): file for file in sorted(kernel.modules.rglob("*.ko*"))}
    tree = kernel.headers
    try:
        listed = (tree / "modules.order").read_text().split()
    except OSError:
        return {}
    except UnicodeDecodeError:
        raise LabError(f"{tree / 'modules.order'} is not a list of modules", hint="build the kernel again") from None
    # The list of Linux 6.1 has .ko, that of 6.12 has .o.
    files = {str(file): tree / file for file in (Path(name).with_suffix(".ko") for name in listed)}
    return {name: file for name, file in files.items() if file.is_file() and ".." not in Path(name).parts}


def lists_folder(kernel: Kernel) -> Path:
    """The folder with the build's lists of modules, such as ``modules.builtin``."""
    return kernel.modules.parent if kernel.modules.is_dir() else kernel.headers


def loaded_files(kernel: Kernel, names: Sequence[str]) -> Mapping[str, Path]:
    """The files to load for these modules, by name, in loading order. Raises LabError for files of another kind."""
    if not names:
        return {}
    if kernel.modules.is_dir():
        return _loaded_of_package(kernel.modules, tuple(names))
    return in_order(module_files(kernel).values(), names)


@lru_cache(maxsize=64)
def _loaded_of_package(modules: Path, names: Sequence[str]) -> Mapping[str, Path]:
    """Cached: searching the 4,000 files of a Debian kernel takes 0.1 s, and every cell asks."""
    return in_order(modules.rglob("*.ko*"), names)


def missing_module_reason(kernel: Kernel, names: Sequence[str]) -> str | None:
    """Why a kernel lacks modules of these names, with the nearest name; None if it has them all."""
    if not names:
        return None
    modules = {module_name(file.name) for file in module_files(kernel).values()}
    if not modules:
        return "it has no modules: everything is built in"
    with contextlib.suppress(OSError):
        built_in = (lists_folder(kernel) / BUILT_IN).read_text(errors="replace")
        modules |= {module_name(Path(line).name) for line in built_in.split()}
    for name in names:
        if module_name(name) not in modules:
            guess = nearest(module_name(name), sorted(modules))
            return f"it has no module {name} of its own" + (f"; did you mean {guess}?" if guess else "")
    return None


# The functions of a module's file in the form of a kernel's image, at invented addresses.
#
# Relocation is left out, as its results depend on where the kernel loads the module. The function tracer's calls are
# nops, as the loader leaves them.

_FUNCTIONS = ("STT_FUNC", "STT_NOTYPE")
"""Assemblers leave a function without a type if the source gives none; the kernel lists it all the same."""
_BASE, _DISTANCE = 0x10000000, 0x01000000
"""The address of the first section and the distance between sections; 32 bits have room for 200."""


def loaded_code(kernel: Kernel, modules: Sequence[str], symbol: str) -> Mapping[str, KernelCode]:
    """The code of those modules and dependencies that have the function. Raises LabError."""
    codes = {name: module_code(file) for name, file in loaded_files(kernel, modules).items()}
    return {name: code for name, code in codes.items() if code.has_function(symbol)}


def module_code(file: Path) -> KernelCode:
    """The functions of a module's file. Raises LabError if it is not a module."""
    try:
        return _code(file, file.stat().st_mtime_ns)
    except (OSError, *DAMAGED) as error:
        raise LabError(f"the functions of a module cannot be read ({error})", where=str(file)) from None


@lru_cache(maxsize=16)
def _code(file: Path, changed: int) -> KernelCode:
    del changed
    image = bytearray(module_content(file))
    elf = ELFFile(io.BytesIO(bytes(image)))
    sections = {
        index: section
        for index, section in enumerate(elf.iter_sections())
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR and section["sh_type"] == "SHT_PROGBITS" and section["sh_size"]
    }
    parts = {
        index: CodePart(_BASE + number * _DISTANCE, section["sh_size"], section["sh_offset"])
        for number, (index, section) in enumerate(sections.items())
    }
    for place in _tracer_calls(elf, parts):
        image[place : place + TRACER_BYTES] = NOPS5[0 if elf.elfclass == 64 else 1]
    return KernelCode(
        sorted(_functions(elf, parts), key=lambda function: function.address),
        bytes(image),
        elf.elfclass // 8,
        list(parts.values()),
        {section.name: parts[index] for index, section in sections.items()},
        is_module=True,
    )


def _functions(elf: ELFFile, parts: Mapping[int, CodePart]) -> Iterator[Symbol]:
    table = elf.get_section_by_name(".symtab")
    for symbol in table.iter_symbols() if isinstance(table, SymbolTableSection) else ():
        part = parts.get(symbol["st_shndx"]) if symbol["st_info"]["type"] in _FUNCTIONS else None
        if part is not None and symbol.name:
            yield Symbol(part.address + symbol["st_value"], "t", symbol.name)
    # Ends the last function of a section.
    for part in parts.values():
        yield Symbol(part.address + part.size, "d", "")


def _tracer_calls(elf: ELFFile, parts: Mapping[int, CodePart]) -> Iterator[int]:
    """File offsets of the function tracer's calls, whose targets the loader fills in."""
    table = elf.get_section_by_name(".symtab")
    if not isinstance(table, SymbolTableSection):
        return
    for section in elf.iter_sections():
        part = parts.get(section["sh_info"])
        if part is None or not isinstance(section, RelocationSection):
            continue
        for relocation in section.iter_relocations():
            if table.get_symbol(relocation["r_info_sym"]).name == "__fentry__":
                yield part.place + relocation["r_offset"] - 1
