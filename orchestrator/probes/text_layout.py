# SPDX-License-Identifier: GPL-2.0-only
"""Where the text and the data of a guest's kernel and of its loaded modules are."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import ModuleMemory, Symbols


@dataclass(frozen=True)
class Span:
    """Kernel memory from ``start`` up to ``end``; ``name`` is a module's, or ``kernel``."""

    name: str
    start: int
    end: int

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    @property
    def size(self) -> int:
        return self.end - self.start


KERNEL = "kernel"


_EXECUTABLE = re.compile(r"\.(?!init\b).*text.*|\.altinstr_(replacement|aux)|\.fixup")
"""The sections of a module's text; the kernel puts them first (layout_sections() of kernel/module/main.c)."""


_SECTION = re.compile(r"/sys/module/([A-Za-z0-9_]+)/sections/([^:\n]+):0x([0-9a-f]{1,16})")


_PAGE = 4096


_LARGEST_TABLE = 1 << 20
"""Bytes to search for a module's table of static branches."""


_LARGEST = 32 << 20
"""Bytes; the text of a Debian kernel for x86_64 has 15 MB."""


_LARGEST_TOGETHER = 128 << 20
"""Bytes of all spans, which are read and kept; a desktop's hundred and fifty modules have 20 MB."""


@dataclass(frozen=True)
class TextLayout:
    """The text of the kernel and then of each module, and the data of all of them."""

    text: Sequence[Span]
    data: Sequence[Span]

    @classmethod
    def of(cls, guest: Guest, symbols: Symbols) -> TextLayout:
        kernel = cls.of_kernel(symbols)
        data = [*kernel.data]
        modules = [Span(name, module.start, module.end) for name, module in ModuleMemory.all_of(guest).items()]
        sections = module_sections(guest, [module.name for module in modules])
        listed = [Span(span.name, span.start, _text_end(span, sections[span.name], symbols)) for span in modules]
        _possible([*kernel.text, *listed])  # before reading any of it
        text = [Span(span.name, span.start, _mapped_end(guest, span.start, span.end)) for span in listed]
        for module, claimed, mapped in zip(modules, listed, text, strict=True):
            table = sections[module.name].get("__jump_table")
            if mapped == claimed and (table is None or table in module):
                data.append(Span(module.name, (mapped.end + 3) & ~3, module.end))
            elif table is not None:  # separate from the text
                data.append(Span(module.name, table, _mapped_end(guest, table, table + _LARGEST_TABLE)))
        return cls(_possible([*kernel.text, *text]), _possible(data))

    @classmethod
    def of_kernel(cls, symbols: Symbols) -> TextLayout:
        """The kernel's own; its data is only the table of static branches, if that is listed.

        Raises EvidenceError for implausible addresses.
        """
        start, end, init = (symbols.anywhere(name) for name in ("_stext", "_etext", "_sinittext"))
        if start is None or end is None or init is None:
            raise EvidenceError("the guest's kernel does not list where its text is (_stext, _etext, _sinittext)")
        first, last = (symbols.anywhere(f"__{side}___jump_table") for side in ("start", "stop"))
        branches = Span(KERNEL, (end + 3) & ~3, init) if first is None or last is None else Span(KERNEL, first, last)
        return cls(_possible([Span(KERNEL, start, end)]), _possible([branches]))


def _mapped_end(guest: Guest, start: int, end: int) -> int:
    """The end of a module's mapped memory from an address on, at most ``end``.

    Since Linux 6.4 (commit ac3b43283923) text and data are separate, each followed by an unmapped page, and the size in
    /proc/modules is that of all parts together.
    """
    if end <= start or _is_mapped(guest, start, end - start):
        return end
    pages = range(start | (_PAGE - 1), end, _PAGE)
    return next((last + 1 - _PAGE for last in pages if not _is_mapped(guest, last, 1)), end)


def _is_mapped(guest: Guest, address: int, size: int) -> bool:
    try:
        guest.read_memory(address, size)
    except GuestError as error:
        if "Invalid addr" not in error.what:  # QEMU's message for unmapped memory (memsave)
            raise
        return False
    return True


def _possible(spans: Sequence[Span]) -> Sequence[Span]:
    for span in spans:
        if not 0 <= span.size <= _LARGEST:
            raise EvidenceError(f"the {span.name} cannot have text or data from {span.start:#x} to {span.end:#x}")
    if sum(span.size for span in spans) > _LARGEST_TOGETHER:
        raise EvidenceError(f"the kernel and its modules have more than {_LARGEST_TOGETHER >> 20} MiB of text or data")
    return [span for span in spans if span.size]


def module_sections(guest: Guest, modules: Collection[str]) -> Mapping[str, Mapping[str, int]]:
    """The addresses of the sections of loaded modules, by module and section."""
    sections: dict[str, dict[str, int]] = {module: {} for module in modules}
    if modules:
        folders = [f"/sys/module/{module}/sections" for module in modules]
        for owner, name, address in _SECTION.findall(guest.succeed(["grep", "-r", "0x", *folders]).text):
            if owner in sections:
                sections[owner][name] = int(address, 16)
    return sections


def _text_end(module: Span, sections: Mapping[str, int], symbols: Symbols) -> int:
    """Where a module's text ends: at its first data, or at the end of the page of its last function.

    Since Linux 6.13 (commit 5185e7f9f3bd) other code, such as a tracer's, may follow on the next page. Its data is
    elsewhere then.
    """
    inside = {name: address for name, address in sections.items() if address in module}
    data = [
        address
        for name, address in inside.items()
        if not _EXECUTABLE.fullmatch(name) and not re.fullmatch(r"\.init\b.*", name)
    ]
    function = symbols.last_in_modules.get(module.name)
    if data or function is None or function not in module:
        return min(data, default=module.end)
    text = (address for name, address in inside.items() if _EXECUTABLE.fullmatch(name))
    return min(module.end, (max(function, *text) | (_PAGE - 1)) + 1)
