# SPDX-License-Identifier: GPL-2.0-only
"""The type information (BTF) of a BPF object: its variables and maps, and values of its types as bytes.

The format is that of Documentation/bpf/btf.rst of Linux.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.catalog.data import unknown
from orchestrator.errors import BuildError

_MAGIC = 0xEB9F
_HEADER = struct.Struct("<HBBIIIII")
_TYPE = struct.Struct("<III")
_INT, _POINTER, _ARRAY, _STRUCT, _UNION, _ENUM, _FORWARD, _TYPEDEF, _VOLATILE, _CONST, _RESTRICT = range(1, 12)
_FUNCTION, _PROTOTYPE, _VARIABLE, _SECTION, _FLOAT, _DECLARATION_TAG, _TYPE_TAG, _ENUM64 = range(12, 20)
_FIXED = {_INT: 4, _ARRAY: 12, _VARIABLE: 4, _DECLARATION_TAG: 4}
"""Bytes behind a type of these kinds."""
_EACH = {_STRUCT: 12, _UNION: 12, _ENUM: 8, _PROTOTYPE: 8, _SECTION: 12, _ENUM64: 12}
"""Bytes behind a type of these kinds, for each of its parts."""
_NAMING = (_TYPEDEF, _VOLATILE, _CONST, _RESTRICT, _TYPE_TAG)
_SIGNED, _CHARACTER, _BOOLEAN = 1, 2, 4
_DEEPEST = 64
"""Types within types; a type that contains itself is damaged."""
_QUOTED = 40
_POINTER_BYTES = 8


@dataclass(frozen=True)
class BtfType:
    """A type, by its number. ``size`` may be the number of the type it is made from; ``parts`` is what follows."""

    number: int
    kind: int
    name: str
    is_flagged: bool
    size: int
    parts: bytes


@dataclass(frozen=True)
class BtfMember:
    """A member of a struct or union: ``offset`` in bits, ``bits`` of a bit field, else 0."""

    name: str
    type: int
    offset: int
    bits: int


@dataclass(frozen=True)
class BtfMap:
    """A map of the object, of a ``kind`` of ``enum bpf_map_type``. A type is 0 where the source names none."""

    kind: int
    key_size: int
    value_size: int
    entries: int
    key_type: int
    value_type: int


class ObjectTypes:
    """The types of an object, of its .BTF section. Raises BuildError for one that is damaged."""

    def __init__(self, section: bytes) -> None:
        try:
            magic, _, _, length, types, types_length, strings, strings_length = _HEADER.unpack_from(section)
            if magic != _MAGIC:
                raise _damaged()
            self._strings = section[length + strings : length + strings + strings_length]
            self._types = [BtfType(0, 0, "void", is_flagged=False, size=0, parts=b"")]
            self._types += self._read(section[length + types : length + types + types_length])
        except struct.error:
            raise _damaged() from None

    def _read(self, content: bytes) -> Iterator[BtfType]:
        at, number = 0, 1
        while at < len(content):
            name, info, size = _TYPE.unpack_from(content, at)
            at += _TYPE.size
            kind, parts = info >> 24 & 31, info & 0xFFFF
            length = _FIXED.get(kind, 0) + parts * _EACH.get(kind, 0)
            if not 0 < kind <= _ENUM64 or at + length > len(content):
                raise _damaged()
            yield BtfType(number, kind, self.text_at(name), bool(info >> 31), size, content[at : at + length])
            at, number = at + length, number + 1

    def text_at(self, offset: int) -> str:
        """The text at an offset in the section's strings."""
        return self._strings[offset : self._strings.find(b"\0", offset)].decode(errors="replace")

    def _at(self, number: int) -> BtfType:
        if number >= len(self._types):
            raise _damaged()
        return self._types[number]

    def meant(self, number: int) -> BtfType:
        """The type without its qualifiers and other names."""
        for _ in range(_DEEPEST):
            named = self._at(number)
            if named.kind not in _NAMING:
                return named
            number = named.size
        raise _damaged()

    def is_volatile(self, number: int) -> bool:
        """Whether a variable's type, or that of its elements, is volatile: its value is read when programs run."""
        for _ in range(_DEEPEST):
            named = self._at(number)
            if named.kind == _VOLATILE:
                return True
            if named.kind not in (*_NAMING, _ARRAY):
                return False
            number = self._element(named)[0] if named.kind == _ARRAY else named.size
        raise _damaged()

    @staticmethod
    def _element(array: BtfType) -> tuple[int, int]:
        """The type of an array's elements, and their number."""
        element, _, number = struct.unpack("<III", array.parts)
        return element, number

    def size_of(self, number: int, depth: int = 0) -> int:
        """Bytes of a type."""
        meant = self.meant(number)
        if meant.kind == _ARRAY and depth < _DEEPEST:
            element, elements = self._element(meant)
            return elements * self.size_of(element, depth + 1)
        if meant.kind == _POINTER:
            return _POINTER_BYTES
        if meant.kind not in (_INT, _STRUCT, _UNION, _ENUM, _ENUM64, _FLOAT):
            raise _damaged()
        return meant.size

    def members(self, meant: BtfType) -> Sequence[BtfMember]:
        """The members of a struct or union; none of other types."""
        if meant.kind not in (_STRUCT, _UNION):
            return ()
        parts = struct.iter_unpack("<III", meant.parts)
        if meant.is_flagged:
            return [BtfMember(self.text_at(name), kind, at & 0xFFFFFF, at >> 24) for name, kind, at in parts]
        return [BtfMember(self.text_at(name), kind, at, 0) for name, kind, at in parts]

    def member(self, meant: BtfType, name: str, path: str) -> BtfMember:
        """The member of this name, also in a struct without a name. Raises BuildError; ``path`` is the whole's."""
        members = self.members(meant)
        for member in members:
            if member.name == name:
                return member
            inner = self.meant(member.type)
            if not member.name and name in [each.name for each in self.members(inner)]:
                inside = self.member(inner, name, path)
                return BtfMember(name, inside.type, member.offset + inside.offset, inside.bits)
        if not members:
            raise BuildError(f"{path} has no members: it is {self.described(meant.number)}")
        raise BuildError(unknown(f"member of {path}", name, [each.name for each in members if each.name]))

    def element(self, meant: BtfType, index: int, path: str) -> tuple[int, int]:
        """The type of an array's element, and its offset in bytes. Raises BuildError; ``path`` is the array's."""
        if meant.kind != _ARRAY:
            raise BuildError(f"{path} is no array: it is {self.described(meant.number)}")
        element, elements = self._element(meant)
        if index >= elements:
            raise BuildError(f"{path} has {elements} elements: the last is {path}[{elements - 1}]")
        return element, index * self.size_of(element)

    def described(self, number: int) -> str:
        """A type in words: ``an unsigned integer of 4 bytes``."""
        meant = self.meant(number)
        if meant.kind == _INT:
            encoding = self._encoding(meant)
            sign = "a signed" if encoding & _SIGNED else "an unsigned"
            return "a bool" if encoding & _BOOLEAN else f"{sign} integer of {meant.size} bytes"
        if meant.kind == _ARRAY:
            return f"an array of {self._element(meant)[1]} elements"
        words = {_ENUM: "enum", _ENUM64: "enum", _STRUCT: "struct", _UNION: "union"}
        return f"{words[meant.kind]} {meant.name}".strip() if meant.kind in words else "neither a number nor text"

    @staticmethod
    def _encoding(meant: BtfType) -> int:
        encoding: int = struct.unpack("<I", meant.parts)[0]
        return encoding >> 24 & 15

    def enumerators(self, meant: BtfType) -> Mapping[str, int]:
        if meant.kind == _ENUM:
            form = "<Ii" if meant.is_flagged else "<II"
            return {self.text_at(name): value for name, value in struct.iter_unpack(form, meant.parts)}
        if meant.kind == _ENUM64:
            signs = struct.iter_unpack("<Iq" if meant.is_flagged else "<IQ", meant.parts)
            return {self.text_at(name): value for name, value in signs}
        return {}

    def is_text(self, meant: BtfType) -> bool:
        """Whether an array is of characters: signed or not, of one byte."""
        if meant.kind != _ARRAY:
            return False
        element = self.meant(self._element(meant)[0])
        is_named = element.name in ("char", "signed char") or bool(
            element.kind == _INT and self._encoding(element) & _CHARACTER
        )
        return element.kind == _INT and element.size == 1 and is_named

    def encoded(self, number: int, value: object, path: str) -> bytes:
        """A value of JSON, or of text that is a number's, as the bytes of a type. Raises BuildError."""
        meant = self.meant(number)
        if meant.kind in (_INT, _ENUM, _ENUM64):
            return self._encoded_number(meant, value, path)
        if self.is_text(meant) and isinstance(value, str):
            text, size = value.encode(), self.size_of(number)
            if len(text) >= size:
                raise BuildError(f"{path} has room for {size - 1} bytes of text; found {len(text)}")
            return text.ljust(size, b"\0")
        if meant.kind == _ARRAY:
            values = value.split(",") if isinstance(value, str) else value
            element, elements = self._element(meant)
            if not isinstance(values, list) or len(values) > elements:
                count = f"{len(values)} of them" if isinstance(values, list) else repr(value)[:_QUOTED]
                raise BuildError(f"{path} is {self.described(number)}; found {count}")
            encoded = b"".join(self.encoded(element, each, f"{path}[{index}]") for index, each in enumerate(values))
            return encoded.ljust(self.size_of(number), b"\0")
        members = self.members(meant)
        if isinstance(value, dict) and members:
            return self._encoded_members(meant, value, path)
        if members:
            names = " or ".join(f"{path}.{member.name}" for member in members[:2] if member.name)
            raise BuildError(f"{path} is {self.described(number)}: name a member of it, {names}")
        raise BuildError(f"{path} is {self.described(number)}, which the lab does not set")

    def _encoded_members(self, meant: BtfType, values: Mapping[str, object], path: str) -> bytes:
        content = bytearray(meant.size)
        for name, value in values.items():
            member = self.member(meant, name, path)
            at = byte_of(member, f"{path}.{name}")
            encoded = self.encoded(member.type, value, f"{path}.{name}")
            if at + len(encoded) > len(content):
                raise _damaged()
            content[at : at + len(encoded)] = encoded
        return bytes(content)

    def _encoded_number(self, meant: BtfType, value: object, path: str) -> bytes:
        enumerators = self.enumerators(meant)
        encoding = self._encoding(meant) if meant.kind == _INT else 0
        text = str(value).lower() if isinstance(value, bool) else value
        is_number = isinstance(text, int | str) and _number(text) is not None
        if isinstance(text, str) and text in enumerators:
            number = enumerators[text]
        elif encoding & _BOOLEAN and text in ("true", "false"):
            number = int(text == "true")
        elif is_number:
            assert isinstance(text, int | str)
            number = _number(text) or 0
        elif enumerators:
            raise BuildError(unknown(f"value of {path}", str(text)[:_QUOTED], enumerators))
        else:
            raise BuildError(f"{path} is {self.described(meant.number)}; found {str(text)[:_QUOTED]!r}")
        is_signed = bool(encoding & _SIGNED) or (bool(enumerators) and meant.is_flagged)
        bits = 8 * meant.size
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
        if encoding & _BOOLEAN:
            most = 1
        if not least <= number <= most:
            raise BuildError(f"{path} is {self.described(meant.number)}, {least} to {most}; found {number}")
        return number.to_bytes(meant.size, "little", signed=is_signed)

    @cached_property
    def variables(self) -> Mapping[str, int]:
        """The types of the object's variables by name."""
        return {each.name: each.size for each in self._types if each.kind == _VARIABLE}

    @cached_property
    def maps(self) -> Mapping[str, BtfMap]:
        """The maps that the source declares in the section .maps, by name."""
        sections = [each for each in self._types if each.kind == _SECTION and each.name == ".maps"]
        numbers = [number for each in sections for number, _, _ in struct.iter_unpack("<III", each.parts)]
        return {variable.name: self._map(variable.size) for variable in map(self._at, numbers)}

    def _map(self, number: int) -> BtfMap:
        members = {member.name: member.type for member in self.members(self.meant(number))}

        def pointed(name: str) -> int:
            return self.meant(members[name]).size if name in members else 0

        def counted(name: str) -> int:
            meant = self.meant(pointed(name))
            return self._element(meant)[1] if meant.kind == _ARRAY else 0

        def size(name: str) -> int:
            return counted(f"{name}_size") or (self.size_of(pointed(name)) if pointed(name) else 0)

        return BtfMap(
            counted("type"), size("key"), size("value"), counted("max_entries"), pointed("key"), pointed("value")
        )


def byte_of(member: BtfMember, path: str) -> int:
    """The offset of a member in bytes. Raises BuildError for a bit field."""
    if member.bits or member.offset % 8:
        raise BuildError(f"{path} is a bit field, which the lab does not set")
    return member.offset // 8


def _number(value: int | str) -> int | None:
    try:
        return int(value, 0) if isinstance(value, str) and len(value) <= _QUOTED else int(value)
    except ValueError:
        return None


def _damaged() -> BuildError:
    return BuildError("the object's type information (BTF) is damaged")
