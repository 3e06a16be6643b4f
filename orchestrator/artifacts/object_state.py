# SPDX-License-Identifier: GPL-2.0-only
"""A BPF object in the state that a row gives it: constants are set in a copy of it, sizes and contents are checked."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.map_contents import packed_entries, read_entries
from orchestrator.artifacts.object_types import ObjectTypes, byte_of
from orchestrator.catalog.data import unknown
from orchestrator.catalog.program_state import ProgramState
from orchestrator.catalog.user_files import DAMAGED
from orchestrator.errors import BuildError, LabError
from orchestrator.paths import user_path

_CONSTANTS = ".rodata"
_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")


def in_state(context: BuildContext, own_object: BpfObject, state: ProgramState, file: Path) -> BpfObject:
    """The object of ``file`` with the constants, sizes and contents of ``state``.

    Raises BuildError for a constant or map that the object lacks, or a value that it does not take, ConfigError for a
    file that cannot be read.
    """
    if not state.is_given:
        return own_object
    content = own_object.file.read_bytes()
    try:
        elf = ELFFile(io.BytesIO(content))
        section = elf.get_section_by_name(".BTF")
        if section is None:
            raise BuildError("the object has no type information (BTF): compile it with clang -g")
        types = ObjectTypes(section.data())
        made = _with_constants(elf, content, types, state.constants)
        for name in (*state.sizes, *state.contents):
            if name not in types.maps:
                raise BuildError(unknown("map", name, types.maps))
    except DAMAGED:
        raise BuildError("the object is damaged", where=str(file)) from None
    except BuildError as error:
        raise _placed(error, str(file)) from None
    source, contents = own_object.source, dict[str, Path]()
    for name, path in state.contents.items():
        entries_file = file.parent / user_path(path) if path.startswith("~") else file.parent / path
        text = read_entries(entries_file)
        kept = types.maps[name]
        try:
            packed = packed_entries(types, name, replace(kept, entries=state.sizes.get(name, kept.entries)), text)
        except BuildError as error:
            raise _placed(error, str(entries_file)) from None
        digest = hashlib.sha256(text).hexdigest()
        source = replace(source, digests={**source.digests, f"map {name}": digest})
        contents[name] = _kept(context, packed, "entries")
    kept_object = own_object.file if made == content else _kept(context, made, own_object.file.name)
    return replace(own_object, file=kept_object, source=source, sizes=state.sizes, contents=contents)


def _placed(error: LabError, where: str) -> BuildError:
    return BuildError(error.what, where=error.where or where, detail=error.detail, hint=error.hint)


def _kept(context: BuildContext, content: bytes, name: str) -> Path:
    inputs = {"object": hashlib.sha256(content).hexdigest()}
    return context.cache.obtain_file("workloads", inputs, name, name, lambda new: new.write_bytes(content))


def _with_constants(elf: ELFFile, content: bytes, types: ObjectTypes, constants: Mapping[str, str]) -> bytes:
    table = elf.get_section_by_name(".symtab")
    symbols = {
        symbol.name: symbol
        for symbol in (table.iter_symbols() if isinstance(table, SymbolTableSection) else ())
        if symbol["st_info"]["type"] == "STT_OBJECT"
    }
    sections = {
        index: section for index, section in enumerate(elf.iter_sections()) if section.name.startswith(_CONSTANTS)
    }
    names = [
        name
        for name, symbol in symbols.items()
        if symbol["st_shndx"] in sections and name in types.variables and types.is_volatile(types.variables[name])
    ]
    changed = bytearray(content)
    for path, text in constants.items():
        name = re.split(r"[.\[]", path, maxsplit=1)[0]
        if name not in names:
            raise BuildError(_not_set(name, names, types))
        section = sections[symbols[name]["st_shndx"]]
        number, offset = types.variables[name], symbols[name]["st_value"]
        if offset + types.size_of(number) > section["sh_size"]:
            raise BuildError("the object's constants are not where its symbols say")
        place = name
        for step in _STEP.finditer(path, len(name)):
            meant = types.meant(number)
            if step[1]:
                member = types.member(meant, step[1], place)
                number, further = member.type, byte_of(member, f"{place}.{step[1]}")
            else:
                number, further = types.element(meant, int(step[2]), place)
            place, offset = place + step[0], offset + further
        encoded = types.encoded(number, text, place)
        if offset + len(encoded) > section["sh_size"]:
            raise BuildError("the object's constants are not where its symbols say")
        at = section["sh_offset"] + offset
        changed[at : at + len(encoded)] = encoded
    return bytes(changed)


def _not_set(name: str, names: list[str], types: ObjectTypes) -> str:
    if name in types.variables:
        return f"{name} is no const volatile variable: only those are read from what is set before a program is loaded"
    if not names:
        return f"unknown constant '{name}'; the object has no const volatile variable"
    return unknown("constant", name, names)
