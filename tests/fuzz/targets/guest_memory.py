# SPDX-License-Identifier: GPL-2.0-only
"""What a guest's kernel has in its memory: its text, and the table of its static branches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from orchestrator.guest.channel import CommandResult
from orchestrator.guest.guest import Guest
from orchestrator.probes.kernel_text import KernelText
from orchestrator.probes.symbols import MODULES, Symbols
from orchestrator.probes.text_layout import Span, TextLayout

_START = 0xC1000000
_TEXT = bytes.fromhex("3e8d742600 e90b000000 6690 eb02 89f6 c3 cc") * 2
"""Nops and jumps, which a kernel makes of each other."""
_END = _START + len(_TEXT)
_DATA_BYTES = 96
_LISTING = f"{_START:08x} T _stext\n{_END:08x} T _etext\n{_END + 4:08x} t __traceiter_sched_switch\n"


class _Memory:
    """A guest that rests when it should, and has these lists and this memory."""

    machine = SimpleNamespace(timing="icount")

    def __init__(self, modules: bytes, sections: bytes, memory: bytes) -> None:
        self._modules, self._sections, self._memory = modules, sections, memory

    def get(self, source: str, **limits: object) -> bytes:
        """The list of modules."""
        assert source == MODULES
        return self._modules

    def succeed(self, argv: list[str], **limits: object) -> CommandResult:
        """Their sections; time passes for any other command."""
        return CommandResult(tuple(argv), 0, self._sections, b"")

    def read_memory(self, address: int, size: int) -> bytes:
        """Memory of that size: the text, or what is behind it."""
        at = max(0, min(address - _START, len(self._memory)))
        return self._memory[at : at + size].ljust(size, b"\0")

    def pause(self) -> None:
        """It does nothing."""

    def resume(self) -> None:
        """It does nothing."""


def read_text_layout(data: bytes) -> None:
    """/proc/kallsyms, /proc/modules and the modules' sections, with a NUL between them."""
    listing, modules, sections = (*data.split(b"\0", 2), b"", b"")[:3]
    layout = TextLayout.of(cast(Guest, _Memory(modules, sections, b"")), Symbols(listing))
    assert all(span.size > 0 for span in (*layout.text, *layout.data))


def read_changed_text(data: bytes) -> None:
    """The kernel's text, and behind it the table that says what it may have changed there."""
    layout = TextLayout([Span("kernel", _START, _END)], [Span("kernel", _END, _END + _DATA_BYTES)])
    KernelText(cast(Guest, _Memory(b"", b"", data)), Symbols(_LISTING.encode()), layout, [_TEXT]).unchanged()
