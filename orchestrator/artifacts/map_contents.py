# SPDX-License-Identifier: GPL-2.0-only
"""Entries of a BPF map as ``bpftool map dump`` writes them in JSON, and as the lab's loader takes them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from orchestrator.artifacts.object_types import BtfMap, ObjectTypes
from orchestrator.errors import BuildError, ConfigError
from orchestrator.files import read_bounded

_LARGEST = 16 << 20
_LARGEST_ENTRY = 1 << 20
"""Bytes of a file of entries, and of a key or a value."""
_HASH, _ARRAY, _LRU, _TRIE, _PERCPU_HASH, _PERCPU_ARRAY, _PERCPU_LRU = 1, 2, 9, 11, 5, 6, 10
"""enum bpf_map_type of include/uapi/linux/bpf.h."""
_OF_EACH_CPU = (_PERCPU_HASH, _PERCPU_ARRAY, _PERCPU_LRU)
_BYTE = re.compile(r"0x[0-9a-fA-F]{1,2}")
_QUOTED = 40
_FORM = 'it has a list of {"key": ["0x01", ...], "value": ["0x02", ...]}, as bpftool map dump -j prints it'


def read_entries(file: Path) -> bytes:
    """The text of a file of entries. Raises ConfigError."""
    try:
        text = read_bounded(file, _LARGEST)
    except OSError as error:
        raise ConfigError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(file)) from None
    if text is None:
        raise ConfigError(f"it has more than {_LARGEST >> 20} MB", where=str(file))
    return text


def packed_entries(types: ObjectTypes, name: str, kept: BtfMap, text: bytes) -> bytes:
    """The keys and values of a map, one behind the other. Raises BuildError for anything that the map cannot hold.

    A key or value is a list of its bytes, or what bpftool prints of its type: a number, an object of members.
    """
    if kept.kind in _OF_EACH_CPU:
        raise BuildError(f"map {name} has values for each CPU, which the lab does not fill")
    if kept.kind not in (_HASH, _ARRAY, _LRU, _TRIE) or not kept.key_size or not kept.value_size:
        raise BuildError(f"map {name} is neither a hash, an array nor a trie: the lab fills no other maps")
    if max(kept.key_size, kept.value_size) > _LARGEST_ENTRY:
        raise BuildError(f"map {name} has keys or values of more than {_LARGEST_ENTRY >> 20} MB")
    try:
        entries = json.loads(text)
    except (ValueError, RecursionError) as error:
        where = f", {str(error).lower()}" if isinstance(error, json.JSONDecodeError) else ""
        raise BuildError(f"not JSON{where}", hint=_FORM) from None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BuildError("not a list of entries", hint=_FORM)
    if kept.entries and len(entries) > kept.entries:
        raise BuildError(f"found {len(entries)} entries, and map {name} has room for {kept.entries}")
    packed = bytearray()
    for number, entry in enumerate(entries):
        if not {"key", "value"} <= entry.keys():
            raise BuildError(f"entry {number} has no {'key' if 'key' not in entry else 'value'}", hint=_FORM)
        packed += _packed(types, entry["key"], (kept.key_type, kept.key_size), f"the key of entry {number}")
        packed += _packed(types, entry["value"], (kept.value_type, kept.value_size), f"the value of entry {number}")
        if len(packed) > _LARGEST:
            raise BuildError(f"the entries have more than {_LARGEST >> 20} MB")
    return bytes(packed)


def _packed(types: ObjectTypes, value: object, form: tuple[int, int], what: str) -> bytes:
    kind, size = form
    packed = _bytes_of(value)
    if packed is None:
        if not kind:
            raise BuildError(f"{what} is no list of bytes, and the source names no type", hint=_FORM)
        packed = types.encoded(kind, value, what)
    if len(packed) != size:
        raise BuildError(f"{what} has {len(packed)} bytes; found a map that has {size} there")
    return packed


def _bytes_of(value: object) -> bytes | None:
    if not isinstance(value, list) or not all(isinstance(byte, str) and _BYTE.fullmatch(byte) for byte in value):
        return None
    listed: Sequence[str] = value
    return bytes(int(byte, 16) for byte in listed)
