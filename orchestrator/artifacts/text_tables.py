# SPDX-License-Identifier: GPL-2.0-only
"""What a kernel's image lists of its text: where it may fault, reports a bug, may branch, and must not be probed.

A kernel without CONFIG_KALLSYMS_ALL (Debian's for i386) has no symbols of these tables. What has a section of its own
is read there; the others are found by their content.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from operator import add

from orchestrator.artifacts.kernel_code import FUNCTION_TYPES, KernelCode

_EXCEPTIONS, _EXCEPTION = "__ex_table", 12
"""struct exception_table_entry: the place, its fixup and data, 4 bytes each (arch/x86/include/asm/extable.h)."""
_BUGS, _BUG = "__bug_table", 12
"""struct bug_entry: the place, and with CONFIG_DEBUG_BUGVERBOSE file, line and flags (include/asm-generic/bug.h)."""
_RODATA, _INIT_DATA = ".rodata", ".init.data"
_LISTED = ("__start_kprobe_blacklist", "__stop_kprobe_blacklist")
_ALWAYS_LISTED = "kprobe_int3_handler"
"""A NOKPROBE_SYMBOL of arch/x86/kernel/kprobes/core.c."""
_MOST_LISTED = 4096
_MOST_ERROR_TYPES = 16


def faulting_places(code: KernelCode, start: int, end: int) -> Sequence[int]:
    """The instructions between two addresses that may fault and are fixed up, in order."""
    table = code.sections.get(_EXCEPTIONS)
    if table is None:
        return ()
    fields = struct.unpack_from(f"<{table.size // 4}i", code.image, table.place)
    behind = 1 << 8 * code.word
    places = ((table.address + 4 * at + fields[at]) % behind for at in range(0, len(fields), _EXCEPTION // 4))
    return sorted(place for place in places if start <= place < end)


def bug_places(code: KernelCode, start: int, end: int) -> frozenset[int]:
    """The instructions between two addresses that report a BUG() or a WARN().

    An entry has the place as a distance from itself, or as a pointer (CONFIG_GENERIC_BUG_RELATIVE_POINTERS).
    """
    table = code.sections.get(_BUGS)
    if table is None:
        return frozenset()
    fields = struct.unpack_from(f"<{table.size // 4}i", code.image, table.place)
    behind = 1 << 8 * code.word
    found = set()
    for at in range(0, len(fields), _BUG // 4):
        found |= {fields[at] % behind, (table.address + 4 * at + fields[at]) % behind}
    return frozenset(place for place in found if start <= place < end)


def static_branches(code: KernelCode, start: int, end: int) -> Mapping[int, int]:
    """The places between two addresses that may be static branches, and where each leads.

    An entry of struct jump_entry has place and target as distances from the fields (include/linux/jump_label.h). The
    table is among the read-only data, of which other fields may look alike: a static branch is a nop or a jump.
    """
    part = code.sections.get(_RODATA)
    if part is None:
        return {}
    fields = array("i", code.image[part.place : part.place + part.size // 4 * 4])
    first, behind = start - part.address, end - part.address
    found = {}
    places = list(map(add, fields, range(0, 4 * len(fields), 4)))
    for place, target in pairwise(places):
        if first <= place < behind and first <= target < behind:
            found[part.address + place] = part.address + target
    return found


def unprobed_functions(code: KernelCode) -> frozenset[int] | None:
    """The functions that are marked as not to be probed (NOKPROBE_SYMBOL); None where the image's list is not found."""
    first, behind = (code.address(name) for name in _LISTED)
    if first is not None and behind is not None and 0 <= behind - first <= _MOST_LISTED * code.word:
        return frozenset(_pointers(code, first, (behind - first) // code.word))
    return _around_known(code)


def _around_known(code: KernelCode) -> frozenset[int] | None:
    """The pointers to functions around that to one that is always in the list."""
    part, known = code.sections.get(_INIT_DATA), code.function(_ALWAYS_LISTED)
    if part is None or known is None:
        return None
    data = code.image[part.place : part.place + part.size]
    pattern = known.to_bytes(code.word, "little")
    # The function tracer's list, which has it as well, is before.
    at = data.rfind(pattern)
    if at < 0 or at % code.word:
        return None
    words = _pointers(code, part.address, part.size // code.word)
    functions = sorted({one.address for one in code.symbols if one.type in FUNCTION_TYPES})

    def is_function(number: int) -> bool:
        if not 0 <= number < len(words):
            return False
        place = bisect_left(functions, words[number])
        return place < len(functions) and functions[place] == words[number]

    first = behind = at // code.word
    while is_function(first - 1):
        first -= 1
    while is_function(behind):
        behind += 1
    # The list of functions whose errors may be injected follows: a function and a small number in turn.
    if behind < len(words) and words[behind] < _MOST_ERROR_TYPES and is_function(behind + 1):
        behind -= 1
    return frozenset(words[first:behind])


def _pointers(code: KernelCode, address: int, count: int) -> Sequence[int]:
    content = code.read(address, count * code.word)
    return list(_words(content, code.word))


def _words(content: bytes, word: int) -> Iterator[int]:
    return (one for (one,) in struct.iter_unpack("<I" if word == 4 else "<Q", content))
