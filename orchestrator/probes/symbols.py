# SPDX-License-Identifier: GPL-2.0-only
"""Where are the functions and modules of a guest's kernel? Its own lists, read once a boot."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.catalog.spelling import nearest
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest

_MOST_GUESSES = 5000
_MODULE = re.compile(r"([A-Za-z0-9_]+) (\d{1,9}) \S+ \S+ Live 0x([0-9a-f]{1,16})")


class Symbols:
    """The kernel's own list of symbols (``/proc/kallsyms``), read once a boot: packages come with none."""

    def __init__(self, listing: bytes) -> None:
        self._listing = listing if listing.endswith(b"\n") else listing + b"\n"

    @classmethod
    def of(cls, guest: Guest) -> Symbols:
        """Read the guest's list."""
        return cls(guest.get("/proc/kallsyms"))

    @classmethod
    def of_image(cls, code: KernelCode) -> Symbols:
        """Those of the kernel's image, which has no modules."""
        return cls("".join(f"{one.address:08x} {one.type} {one.name}\n" for one in code.symbols).encode())

    def address(self, symbol: str) -> int:
        """The address of a function of the kernel itself. Raises EvidenceError when it is not there exactly once."""
        found = self._found(symbol, "tTwW")
        if not found:
            guess = self._nearest(symbol)
            raise EvidenceError(
                f"the guest's kernel has no function {symbol}", hint=f"did you mean {guess}?" if guess else ""
            )
        if len(found) > 1:
            raise EvidenceError(
                f"the guest's kernel has {len(found)} functions {symbol}: which one is meant is not known"
            )
        return found[0]

    def names(self, address: int) -> frozenset[str]:
        """All names of the kernel's own function at an address; the kernel's lists show one of them."""
        found = re.findall(rb"^0*%x [tTwW] (\S+)$" % address, self._listing, re.M)
        return frozenset(name.decode("ascii", errors="replace") for name in found)

    def size(self, symbol: str) -> int:
        """Bytes from a function's beginning to the next symbol, padding included. Raises as ``address`` does."""
        return self._to_next(self.address(symbol)) or 0

    def object_size(self, name: str) -> int | None:
        """Bytes from an object's beginning to the next symbol; None where there is none, or more than one.

        Objects are listed on kernels with CONFIG_KALLSYMS_ALL only.
        """
        found = self._found(name, "bBdDrRaAV")
        return self._to_next(found[0]) if len(found) == 1 else None

    def anywhere(self, name: str) -> int | None:
        """The address of anything of this name, of the linker's too; None where there is none, or more than one."""
        found = self._found(name)
        return found[0] if len(found) == 1 else None

    def at(self, address: int) -> str:
        """What is at an address, as the kernel writes it: ``symbol+0x5``; an address without a symbol as it is."""
        place = bisect_right(self._named, (address, "\x7f")) - 1
        if place < 0:
            return f"{address:#x}"
        start, name = self._named[place]
        return f"{name}+{address - start:#x}" if address != start else name

    def data_at(self, address: int) -> str:
        """The same for data, which kernels without CONFIG_KALLSYMS_ALL do not list: the address itself there."""
        return f"{address:#x}" if self.anywhere("__start___jump_table") is None else self.at(address)

    def _found(self, name: str, types: str = "") -> Sequence[int]:
        """The addresses of what has a name, of these types of symbols or of any; a module's symbols do not count."""
        found, name_at = [], f" {name}\n".encode()
        end = self._listing.find(name_at)
        # Searching for the whole line by an expression takes a tenth of a second in Debian's list.
        while end >= 0:
            line = self._listing[self._listing.rfind(b"\n", 0, end) + 1 : end].decode("ascii", errors="replace")
            address, _, kind = line.partition(" ")
            if re.fullmatch("[0-9a-f]{8,16}", address) and len(kind) == 1 and (not types or kind in types):
                found.append(int(address, 16))
            end = self._listing.find(name_at, end + 1)
        return found

    def _to_next(self, start: int) -> int | None:
        """Bytes to the next symbol; None at the end."""
        behind = bisect_right(self._addresses, start)
        return self._addresses[behind] - start if behind < len(self._addresses) else None

    @cached_property
    def _named(self) -> Sequence[tuple[int, str]]:
        lines = re.findall(rb"^([0-9a-f]{8,16}) \S ([A-Za-z0-9_.]+)", self._listing, re.M)
        return sorted((int(address, 16), name.decode()) for address, name in lines)

    @cached_property
    def _addresses(self) -> Sequence[int]:
        return sorted({int(line.split(b" ", 1)[0], 16) for line in self._listing.splitlines() if line})

    def _nearest(self, symbol: str) -> str | None:
        """The function most like it; matching all of them would take seconds."""
        names = re.findall(rb"^[0-9a-f]{8,16} [tTwW] ([A-Za-z0-9_.]+)$", self._listing, re.M)
        alike = [name.decode() for name in names if name[:4] == symbol[:4].encode() or symbol.encode() in name]
        return nearest(symbol, alike[:_MOST_GUESSES])


@dataclass(frozen=True)
class LoadedModule:
    """A module's memory, from its first byte to behind its last."""

    start: int
    end: int

    @classmethod
    def all_of(cls, guest: Guest) -> Mapping[str, LoadedModule]:
        """The modules in ``/proc/modules`` whose init has ended, by their names."""
        listing = guest.get("/proc/modules").decode("ascii", errors="replace")
        found = [_MODULE.match(line) for line in listing.splitlines()]
        return {one[1]: cls(int(one[3], 16), int(one[3], 16) + int(one[2])) for one in found if one is not None}

    @classmethod
    def of(cls, guest: Guest, name: str) -> LoadedModule:
        """Look one module up. Raises EvidenceError when it is not loaded."""
        module = cls.all_of(guest).get(name)
        if module is None:
            raise EvidenceError(f"module {name} is not among the guest's loaded modules")
        return module
