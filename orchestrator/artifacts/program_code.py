# SPDX-License-Identifier: GPL-2.0-only
"""Code of programs and libraries: the places of functions and static probe points, and a program's libraries."""

from __future__ import annotations

import contextlib
import difflib
import re
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from elftools.construct import ConstructError
from elftools.elf.constants import P_FLAGS, SH_FLAGS
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection, StringTableSection, Symbol, SymbolTableSection

from orchestrator.arch import ARCHITECTURES, Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.demangled_names import demangled, described
from orchestrator.artifacts.disk_images import FILES, Image, ready_image
from orchestrator.artifacts.image_files import ImageFile, TreeRecord, read_out
from orchestrator.artifacts.machine_code import decoded
from orchestrator.artifacts.sources import UserSource, user_source
from orchestrator.artifacts.user_programs import LIBRARIES, shared_library
from orchestrator.catalog.image_recipes import image as image_recipe
from orchestrator.catalog.user_files import DAMAGED, LARGEST, LIBRARY_NAME, UserLibrary
from orchestrator.errors import BuildError

# The static probe points (USDT) of a program: the notes that <sys/sdt.h> leaves in it.
#
# Format: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation, version 3.

_NOTES, _BASE = ".note.stapsdt", ".stapsdt.base"
_OWNER, _VERSION = "stapsdt", "NT_GNU_BUILD_ID"
"""pyelftools has a name for a note's type 3, which here is the version of the format."""


@dataclass(frozen=True)
class StaticPoint:
    """A static probe point: its name ``PROVIDER:NAME``, its address, and its semaphore's, or 0."""

    name: str
    address: int
    semaphore: int


def static_points(elf: ELFFile) -> Iterator[StaticPoint]:
    """All points of the notes, in order; other notes are skipped.

    A base of 0 means that the linker dropped the base's section (--gc-sections): the note's addresses are as linked. A
    point at address 0 belongs to a dropped function.
    """
    base = elf.get_section_by_name(_BASE)
    addresses = struct.Struct("<QQQ" if elf.elfclass == 64 else "<III")
    # Linkers keep several sections of this name if their flags differ.
    named = (section for section in elf.iter_sections() if section.name == _NOTES and isinstance(section, NoteSection))
    for note in chain.from_iterable(section.iter_notes() for section in named):
        described: bytes = note["n_descdata"]
        if (note["n_name"], note["n_type"]) != (_OWNER, _VERSION) or len(described) < addresses.size:
            continue
        place, linked_base, semaphore = addresses.unpack_from(described)
        if not place:
            continue
        provider, name, *_ = [*described[addresses.size :].split(b"\0"), b"", b""]
        moved = base["sh_addr"] - linked_base if base is not None and linked_base else 0
        yield StaticPoint(
            f"{provider.decode(errors='replace')}:{name.decode(errors='replace')}",
            place + moved,
            semaphore + moved if semaphore else 0,
        )


_SHOWN_POINTS, _SHOWN_MANGLED = 8, 3
_IFUNC = "STT_LOOS"  # pyelftools' name for STT_GNU_IFUNC
_FUNCTIONS = ("STT_FUNC", _IFUNC)
_HIDDEN = 1 << 15  # VERSYM_HIDDEN: a superseded version of the symbol


@dataclass(frozen=True)
class ProgramPlace:
    """An instruction: its address, file offset and up to 16 bytes; and a static point's ``semaphore``, or 0.

    Where it ``is_relative`` the address is from where the file is loaded. ``is_program``: the file names a loader.
    """

    address: int
    file_offset: int
    code: bytes
    semaphore: int = 0
    is_relative: bool = False
    is_program: bool = False


def find_in_program(program: Path, symbol: str, offset: int) -> ProgramPlace:
    """``offset`` bytes into a program's function, or its static point PROVIDER:NAME. Raises BuildError."""
    with _read(program, program.name) as elf:
        if elf["e_type"] != "ET_EXEC":
            what = f"{program.name} is position-independent, and has no fixed address"
            raise BuildError(what, hint="link it with -no-pie")
        return _find(elf, "the program", symbol, offset)


def find_in_library(library: Path, name: str, symbol: str, offset: int) -> ProgramPlace:
    """The same in a shared library, relative to its load address; errors call it ``name``. Raises BuildError."""
    with _read(library, name) as elf:
        return _find(elf, name, symbol, offset)


def find_in_image(image_file: ImageFile, symbol: str, offset: int) -> ProgramPlace:
    """The same in a program or library of an image. Raises BuildError, for a 32-bit one, too."""
    name = Path(image_file.path).name
    with _read(image_file.file, name) as elf:
        if elf.elfclass != 64:
            what = f"{image_file.path} is a 32-bit file, and probes are in those of 64-bit programs"
            raise BuildError(what, hint="name the 64-bit one")
        is_program = any(segment["p_type"] == "PT_INTERP" for segment in elf.iter_segments())
        is_relative = elf["e_type"] != "ET_EXEC"
        place = _find(elf, name, symbol, offset)
        return replace(place, is_relative=is_relative, is_program=is_program or not is_relative)


@contextlib.contextmanager
def _read(file: Path, name: str) -> Iterator[ELFFile]:
    try:
        with file.open("rb") as content:
            yield ELFFile(content)
    except OSError as error:
        raise BuildError(f"{name} cannot be read: {error.strerror}") from None
    except (*DAMAGED, ConstructError):
        raise BuildError(f"{name} is damaged: its headers and its contents disagree") from None


def _find(elf: ELFFile, name: str, symbol: str, offset: int) -> ProgramPlace:
    if "::" in symbol:
        raise _not_mangled(elf, name, symbol)
    if ":" in symbol:
        return _static_place(elf, name, symbol)
    functions = _functions(elf)
    if not functions:
        raise BuildError(f"{name} has no symbols: nothing in it can be found by its name", hint="do not strip it")
    if symbol not in functions:
        raise _not_found(elf, name, symbol, functions)
    function = functions[symbol]
    if function.is_one_of_several:
        what = f"{name} has several functions {symbol}: the name is ambiguous"
        raise BuildError(what, hint="rename one of them")
    if function.is_chooser:
        what = "is selected for the CPU when the library is loaded (IFUNC): calls do not enter its symbol"
        raise BuildError(f"{symbol} of {name} {what}", hint="probe another function")
    if offset >= function.size:
        raise BuildError(f"{symbol}+{offset:#x} is beyond the end of {symbol}, which has {function.size:#x} bytes")
    # A breakpoint inside an instruction would corrupt it, in a library for all processes of the guest.
    place = _place_at(elf, function.start + offset, symbol)
    code = _place_at(elf, function.start, symbol, function.size).code
    for instruction in decoded(code, function.start, elf.elfclass // 8):
        if instruction.address < place.address < instruction.end:
            raise BuildError(
                f"{symbol}+{offset:#x} is inside the instruction at +{instruction.address - function.start:#x} "
                f"({instruction.size} bytes): the next one begins at +{instruction.end - function.start:#x}"
            )
    return place


def _not_found(elf: ELFFile, name: str, symbol: str, functions: Mapping[str, _Function]) -> BuildError:
    matches = [entry for table in _tables(elf) for entry in table.iter_symbols() if entry.name.split("@")[0] == symbol]
    if any(entry["st_shndx"] != "SHN_UNDEF" for entry in matches):
        return BuildError(f"{symbol} of {name} is not a function: it is not in executable code")
    if matches:
        return BuildError(
            f"{name} has no function {symbol} of its own: it calls a library's",
            hint=f"name the library: LIBRARY:{symbol}",
        )
    alike = difflib.get_close_matches(symbol, functions, n=3, cutoff=0.5)
    is_stripped = elf.get_section_by_name(".symtab") is None
    why = "it is stripped, so only what it exports has a name" if is_stripped else "the compiler may have inlined it"
    keeps = "name one that it exports" if is_stripped else "__attribute__((noinline)) keeps a function"
    hint = f"did you mean {', '.join(described(alike))}" if alike else keeps
    return BuildError(f"{name} has no function {symbol}; {why}", hint=hint)


def _not_mangled(elf: ELFFile, name: str, symbol: str) -> BuildError:
    """The error for a name as C++ and Rust have it in sources: symbols have it mangled."""
    last = symbol.rpartition("::")[2].partition("(")[0]
    readable = demangled(function for function in _functions(elf) if last in function)
    alike = [function for function, text in readable.items() if text.startswith(symbol.partition("(")[0])]
    alike = alike or [function for function, text in readable.items() if last in text]
    what = f"{name} has no symbol {symbol}: functions of C++ and Rust are named by their mangled names"
    hint = f"did you mean {', '.join(described(alike[:_SHOWN_MANGLED]))}" if alike else f"none of {name} is like it"
    return BuildError(what, hint=hint)


@dataclass(frozen=True)
class _Function:
    """Where a function is. A "chooser" (IFUNC) returns the address of the function that is called instead."""

    start: int
    size: int
    is_chooser: bool
    is_one_of_several: bool = False


def _tables(elf: ELFFile) -> Sequence[SymbolTableSection]:
    """The dynamic table comes last: an exported name takes precedence over static functions of that name."""
    tables = [table for table in elf.iter_sections() if isinstance(table, SymbolTableSection)]
    return sorted(tables, key=lambda table: table["sh_type"] == "SHT_DYNSYM")


def _functions(elf: ELFFile) -> dict[str, _Function]:
    """Functions by name; for a name with several versions, the version that programs are linked with today.

    Assemblers leave out a function's size or type if the source does not give them. A label in code counts as a
    function if no function has its name. A function without a size ends where the next function or exported label
    begins.
    """
    code = [
        range(section["sh_addr"], section["sh_addr"] + section["sh_size"])
        for section in elf.iter_sections()
        if section["sh_flags"] & SH_FLAGS.SHF_EXECINSTR
    ]
    functions: dict[str, _Function] = {}
    beginnings: set[int] = set()
    for table in _tables(elf):
        for kinds in (("STT_NOTYPE",), _FUNCTIONS):
            named: dict[str, _Function] = {}
            for name, entry in _current(elf, table):
                start, kind = int(entry["st_value"]), entry["st_info"]["type"]
                if kind not in kinds or not any(start in part for part in code):
                    continue
                if kind in _FUNCTIONS or entry["st_info"]["bind"] != "STB_LOCAL":
                    beginnings.add(start)
                function = _Function(start, int(entry["st_size"]), kind == _IFUNC)
                is_second = name in named and (named[name].is_one_of_several or named[name].start != start)
                named[name] = replace(function, is_one_of_several=is_second and table["sh_type"] != "SHT_DYNSYM")
            functions |= named
    sizes: dict[int, int] = {}
    for function in functions.values():
        sizes[function.start] = max(function.size, sizes.get(function.start, 0))
    ends = sorted(beginnings | {part.stop for part in code})
    return {
        name: replace(place, size=sizes[place.start] or ends[bisect_right(ends, place.start)] - place.start)
        for name, place in functions.items()
    }


def _current(elf: ELFFile, table: SymbolTableSection) -> Iterator[tuple[str, Symbol]]:
    """A table's defined symbols without superseded versions; names do not include the version."""
    versions = elf.get_section_by_name(".gnu.version") if table["sh_type"] == "SHT_DYNSYM" else None
    of_each = b"" if versions is None else versions.data()
    for index, entry in enumerate(table.iter_symbols()):
        if entry["st_shndx"] == "SHN_UNDEF":
            continue
        if of_each and struct.unpack_from("<H", of_each, 2 * index)[0] & _HIDDEN:
            continue
        # The full table has versions in names: pause@@GLIBC_2.2.5, with a single @ if superseded.
        name, at, version = entry.name.partition("@")
        if name and (not at or version.startswith("@")):
            yield name, entry


def _static_place(elf: ELFFile, file: str, name: str) -> ProgramPlace:
    points = list(static_points(elf))
    matches = list({point.address: point for point in points if point.name == name}.values())
    if not matches:
        names = sorted({point.name for point in points})
        alike = difflib.get_close_matches(name, names, n=3)
        known = (
            f"it has {', '.join(names[:_SHOWN_POINTS])}" if names else "it has none at all; USDT() of usdt.h makes one"
        )
        if alike:
            known = f"did you mean {', '.join(alike)}"
        raise BuildError(f"{file} has no static probe point {name}", hint=known)
    if len(matches) > 1:
        what = f"{file} has the static probe point {name} at {len(matches)} places, and only one can be probed"
        raise BuildError(what, hint="the function that it is in was inlined, or the name is used twice")
    place, semaphore = _place_at(elf, matches[0].address, name), matches[0].semaphore
    if not semaphore:
        return place
    for segment in elf.iter_segments("PT_LOAD"):
        into = semaphore - segment["p_vaddr"]
        if 0 <= into < segment["p_filesz"]:
            return replace(place, semaphore=segment["p_offset"] + into)
    raise BuildError(f"the semaphore of {name} is not in the file of {file}")


def _place_at(elf: ELFFile, address: int, name: str, size: int = 16) -> ProgramPlace:
    for segment in elf.iter_segments("PT_LOAD"):
        into = address - segment["p_vaddr"]
        if segment["p_flags"] & P_FLAGS.PF_X and 0 <= into < segment["p_filesz"]:
            return ProgramPlace(address, segment["p_offset"] + into, segment.data()[into : into + size])
    raise BuildError(f"{name} is in no segment that is executed")


@dataclass(frozen=True)
class SharedLibrary:
    """A library: its file on the host, its path in the guest, and its source if it does not come from the image."""

    name: str
    file: Path
    path: str
    is_brought: bool
    source: UserSource | None = None


def obtain_library(context: BuildContext, arch: Arch, image: str, library: UserLibrary) -> SharedLibrary:
    """The library: compiled, as given, or read from the ``image``. Raises BuildError, HostError."""
    if library.file is None:
        return library_of_image(context, arch, ready_image(context, image_recipe(image)), library.name)
    file, source = library.file, user_source(library.file)
    if library.is_source:
        compiled = shared_library(context, arch, library.file)
        file, source = compiled.file, compiled.source
    return SharedLibrary(library.name, file, f"{LIBRARIES}/{_loaded_as(file)}", is_brought=True, source=source)


def _loaded_as(file: Path) -> str:
    name = file.name
    with _read(file, file.name) as elf:
        dynamic = elf.get_section_by_name(".dynamic")
        texts = elf.get_section(dynamic["sh_link"]) if isinstance(dynamic, DynamicSection) else None
        if isinstance(dynamic, DynamicSection) and isinstance(texts, StringTableSection):
            sonames = (texts.get_string(tag["d_val"]) for tag in dynamic.iter_tags("DT_SONAME"))
            name = next(sonames, "") or name
    if re.fullmatch(LIBRARY_NAME, name) is None:
        raise BuildError(f"{file.name} calls itself {name[:80]!r}, which is not a library's name (SONAME)")
    return name


def library_of_image(context: BuildContext, arch: Arch, image: Image, name: str) -> SharedLibrary:
    """An image's own library. Raises BuildError if the image has none called ``name``, HostError."""
    path = library_path((image.squashfs.parent / FILES).read_text(), arch, name, image.recipe.name)

    return SharedLibrary(name, read_out(context, image, path), f"/{path}", is_brought=False)


def library_path(record: str, arch: Arch, name: str, image: str) -> str:
    """A library's path in an image, with links resolved; ``record`` lists the image's files. Raises BuildError."""
    tree, folders = TreeRecord.of(record), ARCHITECTURES[arch].library_folders
    for folder in folders:
        path = tree.resolved(f"{folder}/{name}")
        if path is None:
            continue
        if tree.sizes[path] > LARGEST:
            raise BuildError(f"{path} of image {image} is larger than {LARGEST >> 20} MiB")
        return path
    parts = (path.rpartition("/") for path in (*tree.sizes, *tree.links))
    names = {name for folder, _, name in parts if folder in folders and re.fullmatch(LIBRARY_NAME, name)}
    alike = difflib.get_close_matches(name, names, n=3)
    hint = f"did you mean {', '.join(alike)}" if alike else "a recipe of your own can add the package that has it"
    raise BuildError(f"image {image} has no library {name} in {' or '.join(folders)}", hint=hint)
