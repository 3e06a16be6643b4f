# SPDX-License-Identifier: GPL-2.0-only
"""Constants of system calls by their names in C, such as ``O_RDONLY``: the host's compiler finds their values.

The kernel's own headers come first: the C library has another ``O_LARGEFILE`` than the kernel. What only the C library
declares, such as ``SOCK_STREAM``, is looked for there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.artifacts.compiler import compiling_in
from orchestrator.errors import ConfigError
from orchestrator.process import run
from orchestrator.requirements import check_installed

_INCLUDE = Path("/usr/include")
_MULTIARCH = _INCLUDE / "x86_64-linux-gnu"
_KERNEL = ((_INCLUDE, "linux"), (_MULTIARCH, "asm"), (_INCLUDE, "asm-generic"))
_LIBRARY = ("fcntl.h", "mqueue.h", "poll.h", "sched.h", "signal.h", "time.h", "unistd.h", "netinet/in.h", "net/if.h")
"""Headers of the C library beside those in its folder ``sys``."""
_WIDTHS = {"i386": "-m32", "x86_64": "-m64"}
_LIMIT = 60.0
_VALUE = re.compile(r"^\s*value (-?\d+)$", re.MULTILINE)
_FUNCTION = 'void function(void) { __asm__ volatile("value %%c0" : : "i" ((long)(%s))); }'
"""As the kernel's own kbuild.h has constants told by the compiler."""
_REFUSING = re.compile(r"(?:from |^)[^\s:]*constant\.c:(\d+)[:,]", re.MULTILINE)
_FIRST_INCLUDE = 2
"""The line of the first header."""


@lru_cache(maxsize=256)
def header_constant(name: str) -> int:
    """The value of a constant, an identifier of C.

    Raises ConfigError where no header has it, or where it depends on the architecture or the header; HostError with the
    packages that are missing.
    """
    check_installed("header-packages.txt", f"{name}, a constant of C,")
    places = [[header] for header in _declaring(name)]
    # Such a name is reserved: only a line of a header tells a constant (__WALL) from what the compiler defines.
    found = _values(name, places) or ({} if name.startswith("_") else _values(name, [[]]))
    if not found:
        raise ConfigError(f"no header of the kernel or of the C library has a constant {name}")
    if len(found) > 1:
        raise ConfigError(f"{name} is {', '.join(f'{value} {where}' for value, where in found.items())}")
    return next(iter(found))


def _values(name: str, places: Sequence[Sequence[str]]) -> Mapping[int, str]:
    """The different values, each with where it is found; no headers are those of the C library."""
    found: dict[int, str] = {}
    for headers in places:
        of_each = {arch: _value(name, arch, headers or _library_headers(arch)) for arch in _WIDTHS}
        where = f"in <{headers[0]}>" if headers else ""
        for arch, value in of_each.items():
            if value is not None:
                on = f"on {arch}" if len({*of_each.values()}) > 1 else ""
                found.setdefault(value, " ".join(filter(None, [on, where])))
    return found


def _declaring(name: str) -> Iterator[str]:
    """The kernel's headers in which a line defines the name, or begins with it in a list."""
    declared = re.compile(rf"^\s*(?:#\s*define\s+{name}\b|{name}\s*(?:[=,/]|$))".encode(), re.MULTILINE)
    for root, folder in _KERNEL:
        for file in sorted((root / folder).rglob("*.h")):
            if declared.search(file.read_bytes()):
                yield str(file.relative_to(root))


@lru_cache(maxsize=2)
def _library_headers(arch: str) -> Sequence[str]:
    """The C library's headers that can be included together; those that refuse an architecture are left out."""
    headers = [*_LIBRARY, *(f"sys/{file.name}" for file in sorted((_MULTIARCH / "sys").glob("*.h")))]
    while True:
        refused = {int(line) - _FIRST_INCLUDE for line in _REFUSING.findall(_compiled("0", arch, headers)[1])}
        left = [header for place, header in enumerate(headers) if place not in refused]
        if len(left) == len(headers):
            return headers
        headers = left


def _value(name: str, arch: str, headers: Sequence[str]) -> int | None:
    found = _VALUE.search(_compiled(name, arch, headers)[0])
    return None if found is None else int(found[1])


def _compiled(expression: str, arch: str, headers: Sequence[str]) -> tuple[str, str]:
    """Assembly that has the value, and the compiler's words."""
    lines = ["#define _GNU_SOURCE", *(f"#include <{header}>" for header in headers)]
    with TemporaryDirectory(prefix="lab-constant-") as name:
        folder = Path(name)
        # The C library's headers for i386 name one that only its 32-bit package has, and it is of no use here.
        (folder / "gnu").mkdir()
        (folder / "gnu/stubs-32.h").touch()
        source = folder / "constant.c"
        source.write_text("\n".join([*lines, _FUNCTION % expression, ""]))
        flags = ["-w", f"-I{folder}", f"-idirafter{_MULTIARCH}"]
        argv = ["gcc", "-std=c11", _WIDTHS[arch], *flags, "-S", "-o", "-", str(source)]
        finished = run(argv, time_limit=_LIMIT, environment=compiling_in(folder))
    return finished.stdout if finished.status == 0 else "", finished.stderr
