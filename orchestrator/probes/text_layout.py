# SPDX-License-Identifier: GPL-2.0-only
"""The addresses of the text of a guest's kernel and of its loaded modules, and of their data."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.static_branches import Span
from orchestrator.probes.symbols import ModuleMemory, Symbols

KERNEL = "kernel"

_EXECUTABLE = re.compile(r"\.(?!init\b).*text.*|\.altinstr_(replacement|aux)|\.fixup")
"""Sections that a module's text consists of; the kernel puts them first (layout_sections() of kernel/module/main.c)."""
_INIT = re.compile(r"\.init\b.*")
"""Sections whose memory the kernel has freed."""
_SECTION = re.compile(r"/sys/module/([A-Za-z0-9_]+)/sections/([^:\n]+):0x([0-9a-f]{1,16})")
_BRANCHES = "__jump_table"
_UNMAPPED = "Invalid addr"
"""QEMU's word for memory that the guest has no page for (memsave)."""
_PAGE = 4096
_LARGEST_TABLE = 1 << 20
"""Bytes that a module's table of static branches is looked for in."""
_LARGEST = 32 << 20
"""Bytes; the text of a Debian kernel for x86_64 has 15 MB."""
_LARGEST_TOGETHER = 128 << 20
"""Bytes of all spans, which are read and kept; a desktop's hundred and fifty modules have 20 MB."""


@dataclass(frozen=True)
class TextLayout:
    """The text of the kernel, then that of each module, and the data of all of them."""

    text: Sequence[Span]
    data: Sequence[Span]

    @classmethod
    def of(cls, guest: Guest, symbols: Symbols) -> TextLayout:
        """Look both up in a running guest. Raises EvidenceError where its lists make no sense."""
        kernel = cls.of_kernel(symbols)
        data = [*kernel.data]
        modules = [Span(name, module.start, module.end) for name, module in ModuleMemory.all_of(guest).items()]
        sections = _sections(guest, modules)
        listed = [Span(one.name, one.start, _first_data(one, sections[one.name])) for one in modules]
        _possible([*kernel.text, *listed])  # before anything of it is read
        text = [Span(one.name, one.start, _mapped_end(guest, one.start, one.end)) for one in listed]
        for module, claimed, mapped in zip(modules, listed, text, strict=True):
            if mapped == claimed:
                data.append(Span(module.name, (mapped.end + 3) & ~3, module.end))
            else:
                data += _table_apart(guest, module, sections[module.name])
        return cls(_possible([*kernel.text, *text]), _possible(data))

    @classmethod
    def of_kernel(cls, symbols: Symbols) -> TextLayout:
        """Those of the kernel alone: of its data only the table of static branches, where that is listed.

        Raises EvidenceError where its lists make no sense.
        """
        start, end, init = (symbols.anywhere(name) for name in ("_stext", "_etext", "_sinittext"))
        if start is None or end is None or init is None:
            raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext, _sinittext)")
        first, last = (symbols.anywhere(f"__{side}___jump_table") for side in ("start", "stop"))
        branches = Span(KERNEL, (end + 3) & ~3, init) if first is None or last is None else Span(KERNEL, first, last)
        return cls(_possible([Span(KERNEL, start, end)]), _possible([branches]))


def _mapped_end(guest: Guest, start: int, end: int) -> int:
    """Where a module's memory from an address on ends, at the latest at ``end``.

    Since Linux 6.4 (commit ac3b43283923) text and data are apart, each behind a page that is not mapped, and the size
    in /proc/modules is that of all parts together.
    """
    if end <= start or _is_mapped(guest, start, end - start):
        return end
    pages = range(start | (_PAGE - 1), end, _PAGE)
    return next((last + 1 - _PAGE for last in pages if not _is_mapped(guest, last, 1)), end)


def _is_mapped(guest: Guest, address: int, size: int) -> bool:
    try:
        guest.read_memory(address, size)
    except GuestError as error:
        if _UNMAPPED not in error.what:
            raise
        return False
    return True


def _table_apart(guest: Guest, module: Span, sections: Mapping[str, int]) -> Sequence[Span]:
    """The memory that a module's table of static branches is in, where it is apart from the text."""
    start = sections.get(_BRANCHES)
    return [] if start is None else [Span(module.name, start, _mapped_end(guest, start, start + _LARGEST_TABLE))]


def _possible(spans: Sequence[Span]) -> Sequence[Span]:
    """Those that have any bytes. Raises EvidenceError where one cannot be."""
    for span in spans:
        if not 0 <= span.size <= _LARGEST:
            raise EvidenceError(f"the {span.name} cannot have text or data from {span.start:#x} to {span.end:#x}")
    if sum(span.size for span in spans) > _LARGEST_TOGETHER:
        raise EvidenceError(f"the kernel and its modules have more than {_LARGEST_TOGETHER >> 20} MiB of text or data")
    return [span for span in spans if span.size]


def _sections(guest: Guest, modules: Sequence[Span]) -> Mapping[str, Mapping[str, int]]:
    """The addresses of each module's sections, by their names."""
    sections: dict[str, dict[str, int]] = {module.name: {} for module in modules}
    if modules:
        folders = [f"/sys/module/{module.name}/sections" for module in modules]
        for owner, name, address in _SECTION.findall(guest.succeed(["grep", "-r", "0x", *folders]).text):
            if owner in sections:
                sections[owner][name] = int(address, 16)
    return sections


def _first_data(module: Span, sections: Mapping[str, int]) -> int:
    """Where a module's text ends: at its first section of data."""
    data = [
        address
        for name, address in sections.items()
        if address in module and not _EXECUTABLE.fullmatch(name) and not _INIT.fullmatch(name)
    ]
    return min(data, default=module.end)
