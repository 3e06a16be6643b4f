# SPDX-License-Identifier: GPL-2.0-only
"""The functions and modules of a guest's kernel, as it lists them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from weakref import WeakKeyDictionary

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.symbol_listing import ListedSymbol, SymbolListing, grouped
from orchestrator.catalog.data import did_you_mean
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest

KALLSYMS = "/proc/kallsyms"
KALLSYMS_MAX = 16 << 20
"""Bytes; a Debian kernel's has 4 MB."""
MODULES = "/proc/modules"
MODULES_MAX = 256 << 10
"""Bytes; a module has a line of some sixty."""

_MOST_SYMBOLS = 500_000
"""A Debian kernel has 95,000, one with CONFIG_KALLSYMS_ALL 200,000. Each takes 300 bytes here."""
_MOST_GUESSES = 5000
_FUNCTION = frozenset("tTwW")
_OBJECT = frozenset("bBdDrRaAV")
_BEHIND_NAMES = "\x7f"
_MODULE = re.compile(r"([A-Za-z0-9_]+) (\d{1,9}) \S+ \S+ Live 0x([0-9a-f]{1,16})")


class Symbols:
    """The kernel's list of symbols (``/proc/kallsyms``), read once per boot, as packages have none.

    A name is searched in its text; only what needs many names parses all of it. Functions of ``modules`` are found as
    well, if the kernel itself has none of the name.
    """

    def __init__(self, listing: bytes, modules: frozenset[str] = frozenset()) -> None:
        self.listing = listing
        self.modules = modules

    @classmethod
    def of(cls, guest: Guest, modules: Iterable[str] = ()) -> Symbols:
        return _shared(guest.get(KALLSYMS, largest=KALLSYMS_MAX), frozenset(modules))

    @classmethod
    def at_start(cls, guest: Guest, modules: Collection[str] = ()) -> Symbols:
        """The same of a guest in which only ``modules`` were loaded since it started."""
        known = None if modules else guest.saved_symbols
        return cls.of(guest, modules) if known is None else _shared(known, frozenset())

    @classmethod
    def at_end(cls, guest: Guest) -> Symbols:
        """The same of a guest that has ended its work, read once: nothing is loaded or unloaded any more."""
        if guest not in _AT_END:
            _AT_END[guest] = cls.of(guest)
        return _AT_END[guest]

    @classmethod
    def of_image(cls, code: KernelCode) -> Symbols:
        return cls("".join(f"{symbol.address:08x} {symbol.type} {symbol.name}\n" for symbol in code.symbols).encode())

    def address(self, symbol: str) -> int:
        """A function's address, in the kernel or else in the modules. Raises EvidenceError unless it is unique."""
        addresses = self._functions(symbol)
        if not addresses:
            # Comparing all names would take seconds.
            names = [name for _, name, kind, module in self._symbols.all if kind in _FUNCTION and not module]
            alike = [name for name in names if name[:4] == symbol[:4] or symbol in name]
            hint = did_you_mean(symbol, alike[:_MOST_GUESSES])
            raise EvidenceError(f"the guest's kernel has no function {symbol}", hint=hint)
        if len(addresses) > 1:
            modules = sorted({self.module(address) or "" for address in addresses})
            where = f" in modules {' and '.join(modules)}" if len(modules) > 1 else ""
            raise EvidenceError(
                f"the guest's kernel has {len(addresses)} functions {symbol}{where}: the name is ambiguous"
            )
        return addresses[0]

    def sharing(self, symbol: str) -> Sequence[str]:
        return sorted({function.module for function in self._module_functions(symbol)})

    def functions(self, name: str) -> int:
        """The number of functions of a name, in the kernel or else in the modules: static functions may share names."""
        return len(self._functions(name))

    def names(self, address: int) -> frozenset[str]:
        pairs = [(name, module) for _, name, kind, module in self._symbols.at(address) if kind in _FUNCTION]
        return frozenset(name for name, module in pairs if not module) or frozenset(name for name, _ in pairs)

    def module(self, address: int) -> str | None:
        """The module that has the function at an address; None for the kernel itself."""
        function = self.function_at(address)
        return None if function is None else function[2]

    def in_entry(self, address: int) -> bool:
        """Whether an address is in code by which the kernel is entered, or in which a new task begins."""
        is_entry = self.address("__entry_text_start") <= address < self.address("__entry_text_end")
        return is_entry or self.at(address).startswith("ret_from_fork")

    def functions_like(self, pattern: re.Pattern[str]) -> Mapping[str, int]:
        """The addresses of the kernel's own functions whose names match completely and are unique."""
        return {
            name: symbols[0].address
            for name, symbols in self._by_name.items()
            if pattern.fullmatch(name) and len(symbols) == 1 and symbols[0].type in _FUNCTION
        }

    def size(self, symbol: str) -> int:
        """Bytes from a function's start to the next symbol, padding included. Raises as ``address`` does."""
        return self._to_next(self.address(symbol)) or 0

    def object_size(self, name: str) -> int | None:
        """Bytes from an object's start to the next symbol; None unless there is exactly one.

        Only kernels with CONFIG_KALLSYMS_ALL list objects.
        """
        objects = self._listed(name, _OBJECT)
        return self._to_next(objects[0]) if len(objects) == 1 else None

    def anywhere(self, name: str) -> int | None:
        """The address of any symbol, the linker's included; None unless there is exactly one."""
        symbols = self._kernel_symbols(name)
        return symbols[0].address if len(symbols) == 1 else None

    def at(self, address: int) -> str:
        """An address as the kernel writes it: ``symbol+0x5``, or the address itself without a symbol."""
        place = bisect_right(self._symbols.all, (address, _BEHIND_NAMES)) - 1
        if place < 0:
            return f"{address:#x}"
        start, name, _, _ = self._symbols.all[place]
        return f"{name}+{address - start:#x}" if address != start else name

    def function_at(self, address: int) -> tuple[int, str, str | None] | None:
        """The last function that starts at or before an address: its start, name and module (None: the kernel)."""
        start = self._symbols.function_before(address)
        functions = [] if start is None else [entry for entry in self._symbols.at(start) if entry.type in _FUNCTION]
        return (functions[-1].address, functions[-1].name, functions[-1].module or None) if functions else None

    def data_at(self, address: int) -> str:
        """An address in data as ``symbol+0x5``; the address itself without CONFIG_KALLSYMS_ALL."""
        return f"{address:#x}" if self.anywhere("__start___jump_table") is None else self.at(address)

    def _listed(self, name: str, kinds: Container[str]) -> Sequence[int]:
        return [symbol.address for symbol in self._kernel_symbols(name) if symbol.type in kinds]

    def _kernel_symbols(self, name: str) -> Sequence[ListedSymbol]:
        return [symbol for symbol in self._symbols.named(name) if not symbol.module]

    def _module_functions(self, name: str) -> Sequence[ListedSymbol]:
        return [symbol for symbol in self._symbols.named(name) if symbol.module and symbol.type in _FUNCTION]

    def _functions(self, name: str) -> Sequence[int]:
        addresses = self._listed(name, _FUNCTION)
        if addresses or not self.modules:
            return addresses
        in_modules = self._module_functions(name)
        # If asked for such a name, the kernel may take any module's.
        is_named = any(function.module in self.modules for function in in_modules)
        return [function.address for function in in_modules] if is_named else []

    def _to_next(self, start: int) -> int | None:
        following = self._symbols.following(start)
        return None if following is None else following - start

    @cached_property
    def _symbols(self) -> SymbolListing:
        if self.listing.count(b"\n") > _MOST_SYMBOLS:
            raise EvidenceError(f"the guest's kernel lists more than {_MOST_SYMBOLS} symbols", where=KALLSYMS)
        return SymbolListing(self.listing)

    @cached_property
    def last_in_modules(self) -> Mapping[str, int]:
        """The address of each module's last function."""
        functions = (symbol for symbol in self._symbols.of_modules() if symbol.type in _FUNCTION)
        return {function.module: function.address for function in functions}

    @cached_property
    def _by_name(self) -> Mapping[str, Sequence[ListedSymbol]]:
        """The kernel's own symbols by name."""
        return grouped((symbol.name, symbol) for symbol in self._symbols.all if not symbol.module)


# Kernels boot with nokaslr: boots of one kernel that load the same modules list the same.
_shared = lru_cache(maxsize=2)(Symbols)
_AT_END: WeakKeyDictionary[Guest, Symbols] = WeakKeyDictionary()


@dataclass(frozen=True)
class ModuleMemory:
    """A module's memory, from its first byte up to its end."""

    start: int
    end: int

    @classmethod
    def all_of(cls, guest: Guest) -> Mapping[str, ModuleMemory]:
        """The modules in ``/proc/modules`` whose init has ended, by name."""
        return cls.all_in(guest.get(MODULES, largest=MODULES_MAX))

    @classmethod
    def all_in(cls, listing: bytes) -> Mapping[str, ModuleMemory]:
        matches = [_MODULE.match(line) for line in listing.decode("ascii", errors="replace").splitlines()]
        return {
            match[1]: cls(int(match[3], 16), int(match[3], 16) + int(match[2]))
            for match in matches
            if match is not None
        }

    @classmethod
    def of(cls, guest: Guest, name: str) -> ModuleMemory:
        module = cls.all_of(guest).get(name)
        if module is None:
            raise EvidenceError(f"module {name} is not among the guest's loaded modules")
        return module
