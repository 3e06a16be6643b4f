# SPDX-License-Identifier: GPL-2.0-only
"""Values of C constants in system calls, such as ``O_RDONLY``, from the host's compiler.

The kernel's headers come first: the C library has another ``O_LARGEFILE``. Constants that only the C library
declares, such as ``SOCK_STREAM``, come from its headers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from orchestrator.arch import ARCHITECTURES
from orchestrator.artifacts.compiler import COMPILE_LIMIT, INCLUDE, MULTIARCH, compiling_in
from orchestrator.errors import ConfigError
from orchestrator.host_packages import check_installed
from orchestrator.process import run

_LIBRARY = ("fcntl.h", "mqueue.h", "poll.h", "sched.h", "signal.h", "time.h", "unistd.h", "netinet/in.h", "net/if.h")
"""Headers of the C library besides those in ``sys/``."""


_VALUE = re.compile(r"^\s*value (-?\d+)$", re.MULTILINE)


_FUNCTION = 'void function(void) { __asm__ volatile("value %%c0" : : "i" ((long)(%s))); }'
"""The method of the kernel's kbuild.h: the compiler prints a constant into its assembly."""


_REFUSING = re.compile(r"(?:from |^)[^\s:]*constant\.c:(\d+)[:,]", re.MULTILINE)


@lru_cache(maxsize=256)
def header_constant(name: str) -> int:
    """The value of a C constant. Raises ConfigError if it has none or several, HostError if packages are missing."""
    check_installed("header-packages.txt", f"{name}, a constant of C,")
    places = [[header] for header in _declaring(name)]
    # Names with a leading underscore are reserved: only a header line tells __WALL from a compiler's own macros.
    values = _values(name, places) or ({} if name.startswith("_") else _values(name, [[]]))
    if not values:
        raise ConfigError(f"no header of the kernel or of the C library has a constant {name}")
    if len(values) > 1:
        raise ConfigError(f"{name} is {', '.join(f'{value} {where}' for value, where in values.items())}")
    return next(iter(values))


def _values(name: str, places: Sequence[Sequence[str]]) -> Mapping[int, str]:
    places_by_value: dict[int, str] = {}
    for headers in places:
        printed = {arch: _compiled(name, arch, headers or _library_headers(arch))[0] for arch in ARCHITECTURES}
        of_each = {arch: match[1] if (match := _VALUE.search(text)) else None for arch, text in printed.items()}
        where = f"in <{headers[0]}>" if headers else ""
        for arch, value in of_each.items():
            if value is not None:
                on = f"on {arch}" if len({*of_each.values()}) > 1 else ""
                places_by_value.setdefault(int(value), " ".join(filter(None, [on, where])))
    return places_by_value


def _declaring(name: str) -> Iterator[str]:
    declared = re.compile(rf"^\s*(?:#\s*define\s+{name}\b|{name}\s*(?:[=,/]|$))".encode(), re.MULTILINE)
    for root, folder in ((INCLUDE, "linux"), (MULTIARCH, "asm"), (INCLUDE, "asm-generic")):
        for file in sorted((root / folder).rglob("*.h")):
            if declared.search(file.read_bytes()):
                yield str(file.relative_to(root))


@lru_cache(maxsize=2)
def _library_headers(arch: str) -> Sequence[str]:
    """The C library headers that can be included together, without those that reject an architecture."""
    headers = [*_LIBRARY, *(f"sys/{file.name}" for file in sorted((MULTIARCH / "sys").glob("*.h")))]
    while True:
        # The first header is in line 2.
        refused = {int(line) - 2 for line in _REFUSING.findall(_compiled("0", arch, headers)[1])}
        left = [header for place, header in enumerate(headers) if place not in refused]
        if len(left) == len(headers):
            return headers
        headers = left


def _compiled(expression: str, arch: str, headers: Sequence[str]) -> tuple[str, str]:
    lines = ["#define _GNU_SOURCE", *(f"#include <{header}>" for header in headers)]
    with TemporaryDirectory(prefix="lab-constant-") as name:
        folder = Path(name)
        # For i386, headers include gnu/stubs-32.h, which only the 32-bit package has. An empty one will do.
        (folder / "gnu").mkdir()
        (folder / "gnu/stubs-32.h").touch()
        source = folder / "constant.c"
        source.write_text("\n".join([*lines, _FUNCTION % expression, ""]))
        flags = ["-w", f"-I{folder}", f"-idirafter{MULTIARCH}"]
        argv = ["gcc", "-std=c11", ARCHITECTURES[arch].gcc_flag, *flags, "-S", "-o", "-", str(source)]
        finished = run(argv, time_limit=COMPILE_LIMIT, environment=compiling_in(folder))
    return finished.stdout if finished.status == 0 else "", finished.stderr
