# SPDX-License-Identifier: GPL-2.0-only
"""Whether the text of a guest's kernel and modules has changed; QEMU reads it from outside."""

from __future__ import annotations

import hashlib
import re
import struct
from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, starmap
from typing import NamedTuple

from orchestrator.artifacts.function_entry import NOPS5
from orchestrator.errors import EvidenceError, GuestError, UnsupportedError
from orchestrator.guest.guest import Guest
from orchestrator.guest.pausing import paused
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.results.contract import SwitchedBranch, TextEvidence

# Static branches: whether a changed place of the kernel's text is one, and whose. The kernel switches these itself. A
# table entry is found by its content, as kernels without CONFIG_KALLSYMS_ALL do not list the table.

LONGEST = 5

_NOPS = {2: (b"\x66\x90", b"\x89\xf6"), LONGEST: NOPS5}
"""By size (BYTES_NOP2 on 64 and on 32 bits of arch/x86/include/asm/nops.h)."""
_JUMPS = {2: struct.Struct("<Bb"), LONGEST: struct.Struct("<Bi")}
_JUMP_OPCODES = {2: 0xEB, LONGEST: 0xE9}

_FLAGS = 3
"""Low bits of a key's address in the table, which are flags."""
_TRACEPOINT_WORDS = 8
"""Words from a tracepoint's key that include its functions (struct tracepoint of include/linux/tracepoint-defs.h)."""
_TRACEPOINT_FUNCTIONS = ("__SCT__tp_func_", "__traceiter_")


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


class Switched(NamedTuple):
    """An apparently switched static branch: a nop became a jump to ``target``, or the reverse."""

    address: int
    target: int
    size: int


def switched_at(address: int, before: bytes, after: bytes) -> Switched | None:
    """The switched branch if a nop and a jump replaced each other; ``before`` and ``after`` begin at the address."""
    for nop, jump in ((before, after), (after, before)):
        for size, nops in _NOPS.items():
            if nop[:size] in nops and len(jump) >= size and jump[0] == _JUMP_OPCODES[size]:
                return Switched(address, address + size + _JUMPS[size].unpack_from(jump)[1], size)
    return None


def keys_of(guest: Guest, data: Sequence[Span], branches: Sequence[Switched]) -> Mapping[Switched, int]:
    """The key addresses of those branches that are static branches, from the entries of struct jump_entry in ``data``.

    An entry has the place, the target and the key, each as a distance from its own field (include/linux/jump_label.h);
    the key's is a word long.
    """
    keys: dict[Switched, int] = {}
    for span in data if branches else ():
        memory = guest.read_memory(span.start, span.size)
        word = struct.Struct("<q" if span.start >> 32 else "<i")
        # Distances from the span's start: the loop runs over a million fields.
        switcheds = {branch.address - span.start: branch for branch in branches}
        fields = array("i", memory[: len(memory) // 4 * 4])
        entries = [at for at, field in zip(range(0, len(memory), 4), fields, strict=False) if at + field in switcheds]
        for entry in entries:
            branch = switcheds[entry + fields[entry // 4]]
            if entry + 8 + word.size > len(memory):
                continue
            if span.start + entry + 4 + fields[entry // 4 + 1] == branch.target:
                keys[branch] = (span.start + entry + 8 + word.unpack_from(memory, entry + 8)[0]) & ~_FLAGS
    return keys


def tracepoint_of(guest: Guest, symbols: Symbols, key: int) -> str | None:
    """The name of the tracepoint that contains a static key, or None."""
    size, code = (8, "Q") if key >> 32 else (4, "I")
    words = struct.unpack(f"<{_TRACEPOINT_WORDS}{code}", guest.read_memory(key, _TRACEPOINT_WORDS * size))
    names = [name for name in map(symbols.at, filter(None, words)) if "+" not in name]
    return next((name.removeprefix(by) for name in names for by in _TRACEPOINT_FUNCTIONS if name.startswith(by)), None)


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


# Comparing two texts of one size. Megabytes that are equal take a thousandth of a second each.

_BLOCK = 4096


def differing(before: bytes | bytearray, after: bytes) -> Iterator[tuple[int, int]]:
    """The start and end of each run of differing bytes, in order; a run ends with its block."""
    for block in range(0, len(before), _BLOCK):
        old, new = before[block : block + _BLOCK], after[block : block + _BLOCK]
        if old != new:
            either = int.from_bytes(old, "little") ^ int.from_bytes(new, "little")
            for run in re.finditer(rb"[^\0]+", either.to_bytes(len(old), "little")):
                yield block + run.start(), block + run.end()


# Changes of a guest's kernel and module text. A running kernel patches its own text only at static branches: any other
# change was left behind by a tracer or a probe.

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
