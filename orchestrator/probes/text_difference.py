# SPDX-License-Identifier: GPL-2.0-only
"""What differs in the text of a guest's kernel, and of its modules, from what it should be? QEMU reads it from outside.

A running kernel patches its own text at static branches only. Alternatives, lock prefixes, the function tracer's sites
and static calls are patched at boot, or on behalf of a tracer or a probe: what has changed there was left behind.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.rest import at_rest
from orchestrator.probes.differing_bytes import differing
from orchestrator.probes.static_branches import LONGEST, keys_of, switched_at, tracepoint_of
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.results.contract import SwitchedBranch

_TURNS = 10
_TURN = "0.3"
"""Guest seconds: kprobes restore the text under a jump in the background, five ticks after a probe has gone."""

_MOST_CHANGED = 20_000
"""Differing bytes of one module or of the kernel that are looked at one by one; those behind them are not."""
_NEAR = 8
"""Bytes between two differences that are shown as one."""
_SHOWN_BYTES = 16
_MOST_SHOWN = 8

Content = Sequence[bytes]
"""The text of the kernel, then that of each module."""


@dataclass(frozen=True)
class Settled:
    """The text as it is; static branches that the kernel has switched are all that differs."""

    content: Content
    switched: tuple[SwitchedBranch, ...]


@dataclass(frozen=True)
class _Look:
    """The text as it is, the branches that were switched, and the addresses of ``others``."""

    content: Content
    switched: tuple[SwitchedBranch, ...]
    others: dict[int, str]


class GuestText:
    """The text of one guest, where ``layout`` has it."""

    def __init__(self, guest: Guest, symbols: Symbols, layout: TextLayout) -> None:
        self._guest, self._symbols, self._layout = guest, symbols, layout

    def read(self) -> Content:
        """The text as it is now. Raises GuestError."""
        with at_rest(self._guest):
            return self._spans()

    def settled(self, expected: Content) -> Settled:
        """The text, compared with what it should be.

        Raises EvidenceError for every difference that is not a static branch which the kernel has switched for itself,
        and for a tracepoint that is enabled on one side only.
        """
        look = self._look(expected)
        for _ in range(_TURNS):
            if not look.others:
                break
            self._guest.succeed(["sleep", _TURN])
            look = self._look(expected, look)
        if look.others:
            lines = list(islice(self._shown(expected, look.content, look.others), _MOST_SHOWN + 1))
            if len(lines) > _MOST_SHOWN:
                lines[_MOST_SHOWN] = "and more"
            raise EvidenceError("the cell left the kernel's text changed", detail=lines)
        return Settled(look.content, look.switched)

    def _look(self, expected: Content, last: _Look | None = None) -> _Look:
        """The text now; where it is what it was at the ``last`` look, the same again."""
        # A resting guest lets QEMU read the text of a Debian kernel (10 MB) in 5 ms instead of 20.
        with at_rest(self._guest):
            content = self._spans()
            if last is not None and content == last.content:
                return last
            return _Look(content, *self._differences(expected, content))

    def _spans(self) -> Content:
        return [self._guest.read_memory(span.start, span.size) for span in self._layout.text]

    def _differences(self, expected: Content, content: Content) -> tuple[tuple[SwitchedBranch, ...], dict[int, str]]:
        """The kernel's own switched branches, and the addresses of all other bytes that differ, each with a remark."""
        changed = {
            address: ""
            for span, before, after in zip(self._layout.text, expected, content, strict=True)
            for address in islice(_changed(span.start, before, after), _MOST_CHANGED)
        }
        looks = [
            switched_at(address, self._at(expected, address, LONGEST), self._at(content, address, LONGEST))
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
            before, after = (self._at(one, branch.address, branch.size).hex() for one in (expected, content))
            name = self._symbols.at(branch.address)
            switched.append(SwitchedBranch(place=name, key=self._symbols.data_at(key), before=before, after=after))
        return tuple(switched), changed

    def _at(self, content: Content, address: int, size: int) -> bytes:
        """Bytes of the text, fewer at its end."""
        for span, text in zip(self._layout.text, content, strict=True):
            if address in span:
                return text[address - span.start : address - span.start + size]
        return b""

    def _shown(self, expected: Content, content: Content, changed: dict[int, str]) -> Iterator[str]:
        for first, last in _near(sorted(changed)):
            size = min(last - first + 1, _SHOWN_BYTES)
            before, after = (self._at(one, first, size).hex(" ") for one in (expected, content))
            yield f"{first:#x} {self._symbols.at(first)}: {before} became {after}{changed[first]}"


def _changed(start: int, before: bytes, after: bytes) -> Iterator[int]:
    """The addresses of bytes that differ, in order; ``start`` is the first byte's."""
    for first, end in differing(before, after):
        yield from range(start + first, start + end)


def _near(addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last address of each group."""
    first = last = addresses[0]
    for address in addresses[1:]:
        if address - last > _NEAR:
            yield first, last
            first = address
        last = address
    yield first, last
