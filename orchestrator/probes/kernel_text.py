# SPDX-License-Identifier: GPL-2.0-only
"""Is the text of a guest's kernel, and of its modules, still what it was? QEMU reads it from outside.

A running kernel patches its own text at static branches only. Alternatives, lock prefixes, the function tracer's sites
and static calls are patched at boot, or on behalf of a tracer or a probe: what has changed there was left behind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.static_branches import LONGEST, keys_of, switched_at, tracepoint_of
from orchestrator.probes.symbols import Symbols
from orchestrator.probes.text_layout import TextLayout
from orchestrator.results.contract import SwitchedBranch, TextEvidence

_TURNS = 10
_TURN = "0.3"
"""Guest seconds: kprobes restore the text under a jump in the background, five ticks after a probe has gone."""

_BLOCK = 4096
_MOST_CHANGED = 20_000
"""Differing bytes of one module or of the kernel that are looked at one by one; those behind them are not."""
_NEAR = 8
"""Bytes between two differences that are shown as one."""
_SHOWN_BYTES = 16
_MOST_SHOWN = 8


class KernelText:
    """The text of one guest's kernel and of the modules loaded in it, as it was when it was looked at last."""

    def __init__(self, guest: Guest, symbols: Symbols) -> None:
        """Read the text. Modules that are loaded later do not count. Raises EvidenceError, GuestError."""
        self._guest, self._symbols = guest, symbols
        self._layout = TextLayout.of(guest, symbols)
        self._content = self._read()
        self._digest = _digest(self._content)

    def unchanged(self) -> TextEvidence:
        """Compare the text with what it was, and keep it as it is now.

        Static branches that the kernel has switched for itself are in the evidence. Raises EvidenceError for every
        other difference, and for a tracepoint that is not as it was.
        """
        content = self._read()
        switched, others = self._differences(content)
        for _ in range(_TURNS):
            if not others:
                break
            self._guest.succeed(["sleep", _TURN])
            seen, content = content, self._read()
            if content != seen:
                switched, others = self._differences(content)
        if others:
            lines = list(islice(self._shown(content, others), _MOST_SHOWN + 1))
            if len(lines) > _MOST_SHOWN:
                lines[_MOST_SHOWN] = "and more"
            raise EvidenceError("the cell left the kernel's text changed", detail=lines)
        if switched:
            self._content, self._digest = content, _digest(content)
        modules = tuple(span.name for span in self._layout.text[1:])
        size = sum(span.size for span in self._layout.text)
        return TextEvidence(digest=self._digest, size=size, modules=modules, switched=switched)

    def _read(self) -> list[bytes]:
        # The host's CPU runs a KVM guest: its TSC would go on while it is paused.
        if self._guest.machine.timing == "kvm":
            return self._spans()
        # An idle guest on the exact clock keeps the host as busy as a working one, and reading the text of a Debian
        # kernel (10 MB) then takes QEMU 20 ms instead of 5. After an error the guest is not used again.
        self._guest.pause()
        content = self._spans()
        self._guest.resume()
        return content

    def _spans(self) -> list[bytes]:
        return [self._guest.read_memory(span.start, span.size) for span in self._layout.text]

    def _differences(self, content: Sequence[bytes]) -> tuple[tuple[SwitchedBranch, ...], dict[int, str]]:
        """The kernel's own switched branches, and the addresses of all other bytes that differ, each with a remark."""
        changed = {
            address: ""
            for span, before, after in zip(self._layout.text, self._content, content, strict=True)
            if before != after
            for address in islice(_changed(span.start, before, after), _MOST_CHANGED)
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
            before, after = (self._at(one, branch.address, branch.size).hex() for one in (self._content, content))
            name = self._symbols.at(branch.address)
            switched.append(SwitchedBranch(place=name, key=self._symbols.data_at(key), before=before, after=after))
        return tuple(switched), changed

    def _at(self, content: Sequence[bytes], address: int, size: int) -> bytes:
        """Bytes of the text, fewer at its end."""
        for span, text in zip(self._layout.text, content, strict=True):
            if address in span:
                return text[address - span.start : address - span.start + size]
        return b""

    def _shown(self, content: Sequence[bytes], changed: dict[int, str]) -> Iterator[str]:
        for first, last in _near(sorted(changed)):
            size = min(last - first + 1, _SHOWN_BYTES)
            before, after = (self._at(one, first, size).hex(" ") for one in (self._content, content))
            yield f"{first:#x} {self._symbols.at(first)}: {before} became {after}{changed[first]}"


def _changed(start: int, before: bytes, after: bytes) -> Iterator[int]:
    """The addresses of bytes that differ, in order; ``start`` is the first byte's."""
    for block in range(0, len(before), _BLOCK):
        old, new = before[block : block + _BLOCK], after[block : block + _BLOCK]
        if old != new:
            yield from (start + block + at for at, pair in enumerate(zip(old, new, strict=True)) if pair[0] != pair[1])


def _near(addresses: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last address of each group."""
    first = last = addresses[0]
    for address in addresses[1:]:
        if address - last > _NEAR:
            yield first, last
            first = address
        last = address
    yield first, last


def _digest(content: Sequence[bytes]) -> str:
    digest = hashlib.sha256()
    for text in content:
        digest.update(text)
    return digest.hexdigest()
