# SPDX-License-Identifier: GPL-2.0-only
"""Names of C++ and Rust as their sources have them: programs have them mangled, and so do probes name them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from orchestrator.process import run

_MANGLED = ("_Z", "_R")
"""How mangled names begin: C++'s, which Rust has, too, and Rust's own (RFC 2603)."""
_AT_ONCE = 1000
"""Names in a command line: the longest of Debian's libraries have some hundred bytes each."""
_LIMIT = 60.0


def is_mangled(name: str) -> bool:
    """Whether a symbol may be a mangled name."""
    return name.startswith(_MANGLED)


def demangled(names: Iterable[str]) -> Mapping[str, str]:
    """What mangled names are in the source, by symbols; others are left out. Raises HostError without binutils."""
    readable: dict[str, str] = {}
    mangled = filter(is_mangled, names)
    while some := list(islice(mangled, _AT_ONCE)):
        lines = run(["c++filt", *some], time_limit=_LIMIT).stdout.splitlines()
        readable |= {name: line for name, line in zip(some, lines, strict=False) if line != name}
    return readable


def described(names: Iterable[str]) -> list[str]:
    """Symbols for a message, with what they are in the source behind mangled ones."""
    symbols = list(names)
    readable = demangled(symbols)
    return [f"{name} ({readable[name]})" if name in readable else name for name in symbols]
