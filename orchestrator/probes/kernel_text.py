# SPDX-License-Identifier: GPL-2.0-only
"""Whether the text of a guest's kernel and modules has changed; QEMU reads it from outside.

A running kernel patches its own text only at static branches: any other change was left behind by a tracer or a probe.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, starmap
from typing import NamedTuple

from orchestrator.errors import EvidenceError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.pausing import paused
from orchestrator.probes.static_branches import LONGEST, keys_of, switched_at, tracepoint_of
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import Span, TextLayout
from orchestrator.results.contract import SwitchedBranch, TextEvidence

_BLOCK = 4096


def differing(before: bytes | bytearray, after: bytes) -> Iterator[tuple[int, int]]:
    """The start and end of each run of differing bytes, in order; a run ends with its block."""
    for block in range(0, len(before), _BLOCK):
        old, new = before[block : block + _BLOCK], after[block : block + _BLOCK]
        if old != new:
            either = int.from_bytes(old, "little") ^ int.from_bytes(new, "little")
            for run in re.finditer(rb"[^\0]+", either.to_bytes(len(old), "little")):
                yield block + run.start(), block + run.end()


_TURN = "0.3"
"""Guest seconds: kprobes restore the text under a jump in the background, five ticks after removal."""

_MOST_CHANGED = 20_000
"""Limit of differing bytes, for a module or the kernel, that are examined one by one."""
_NEAR = 8
"""Bytes between two differences that are shown as one."""
_MOST_SHOWN = 8

Content = Sequence[bytes]
"""The text of the kernel, then of each module."""


class _Look(NamedTuple):
    """The current text, the branches that the kernel switched, and the ``unexplained`` differences, with a remark."""

    content: Content
    switched: tuple[SwitchedBranch, ...]
    unexplained: Mapping[int, str]


class KernelText:
    """The text of a guest's kernel and of its loaded modules at the last look.

    ``layout`` says where it is, ``content`` what it was; None reads either. Modules that are loaded later are ignored.
    Raises EvidenceError, GuestError.
    """

    def __init__(
        self, guest: Guest, symbols: Symbols, layout: TextLayout | None = None, content: Content | None = None
    ) -> None:
        self._guest, self._symbols = guest, symbols
        self._layout = layout or TextLayout.of(guest, symbols)
        if content is None:
            with paused(guest):
                content = self._spans()
        self._content, self._digest = content, _digest(content)

    def unchanged(self) -> TextEvidence:
        """Compare the text with the last look, and keep the current one.

        The evidence includes static branches that the kernel has switched for itself. Raises EvidenceError for every
        other difference, and for a tracepoint in another state.
        """
        look = self._look()
        for _ in range(10):
            if not look.unexplained:
                break
            self._guest.succeed(["sleep", _TURN])
            look = self._look(look)
        if look.unexplained:
            lines = list(islice(self._shown(look.content, look.unexplained), _MOST_SHOWN + 1))
            if len(lines) > _MOST_SHOWN:
                lines[_MOST_SHOWN] = "and more"
            raise EvidenceError("the cell left the kernel's text changed", detail=lines)
        if look.switched:
            self._content, self._digest = look.content, _digest(look.content)
        modules = tuple(span.name for span in self._layout.text[1:])
        size = sum(len(text) for text in self._content)
        return TextEvidence(digest=self._digest, size=size, modules=modules, switched=look.switched)

    def _look(self, last: _Look | None = None) -> _Look:
        """The current text; returns the ``last`` look itself if nothing has changed."""
        # A paused guest lets QEMU read the text of a Debian kernel (10 MB) in 5 ms instead of 20.
        with paused(self._guest):
            content = self._spans()
            if last is not None and content == last.content:
                return last
            changed = {
                span.start + address: ""
                for span, before, after in zip(self._layout.text, self._content, content, strict=True)
                for address in islice(chain.from_iterable(starmap(range, differing(before, after))), _MOST_CHANGED)
            }
            looks = [
                switched_at(address, self._at(self._content, address, LONGEST), self._at(content, address, LONGEST))
                for address in changed
            ]
            keys = keys_of(self._guest, self._layout.data, [look for look in looks if look is not None])
            switched: list[SwitchedBranch] = []
            for branch, key in keys.items():
                place = range(branch.address, branch.address + branch.size)
                tracepoint = tracepoint_of(self._guest, self._symbols, key)
                if tracepoint is not None:
                    changed |= dict.fromkeys(place, f" (tracepoint {tracepoint})")
                    continue
                for address in place:
                    changed.pop(address, None)
                old, new = (self._at(text, branch.address, branch.size).hex() for text in (self._content, content))
                name = self._symbols.at(branch.address)
                switched.append(SwitchedBranch(place=name, key=self._symbols.data_at(key), before=old, after=new))
            return _Look(content, tuple(switched), changed)

    def _spans(self) -> Content:
        return [self._guest.read_memory(span.start, span.size) for span in self._layout.text]

    def _at(self, content: Content, address: int, size: int) -> bytes:
        for span, text in zip(self._layout.text, content, strict=True):
            if address in span:
                return text[address - span.start : address - span.start + size]
        return b""

    def _shown(self, content: Content, changed: Mapping[int, str]) -> Iterator[str]:
        for first, last in _near(sorted(changed)):
            size = min(last - first + 1, 16)
            before, after = (self._at(text, first, size).hex(" ") for text in (self._content, content))
            yield f"{first:#x} {self._symbols.at(first)}: {before} became {after}{changed[first]}"


def _near(addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
    first = last = addresses[0]
    for address in addresses[1:]:
        if address - last > _NEAR:
            yield first, last
            first = address
        last = address
    yield first, last


def _digest(content: Content) -> str:
    return hashlib.sha256(b"".join(content)).hexdigest()


def text_since(guest: Guest, before: bytes, span: Span) -> TextEvidence:
    """Compare the kernel's text at ``span`` with ``before``, after a guest's unattended work.

    Raises as ``KernelText.unchanged`` does, and UnsupportedError if the guest's kernel has its text elsewhere. The text
    of modules is not compared.
    """
    symbols = Symbols.at_end(guest)
    layout = TextLayout.of_kernel(symbols)
    if layout.text[0] != span:
        raise UnsupportedError(
            "whether the kernel's text is what it was is not known: its vmlinux is of another build",
            hint="build the kernel again, and boot the image of that build",
        )
    return KernelText(guest, symbols, layout, [before]).unchanged()
