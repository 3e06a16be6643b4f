# SPDX-License-Identifier: GPL-2.0-only
"""The headers that are generated for guest programs: ``system_calls.h``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.catalog.system_calls import SystemCall, system_calls

_HEADER = """\
// SPDX-License-Identifier: GPL-2.0-only
// Generated from images/guest/system_calls.tbl: the names of the kernel's <asm/unistd.h>, and those of a C library.
#ifndef SYSTEM_CALLS_H
#define SYSTEM_CALLS_H

#ifdef __i386__
{i386}#else
{x86_64}#endif

#endif
"""


def guest_headers(context: BuildContext) -> Path:
    """The folder with the generated headers."""
    text = system_calls_header(system_calls().values())

    def write(folder: Path) -> None:
        (folder / "guest").mkdir()
        (folder / "guest/system_calls.h").write_text(text)

    inputs = {"headers": {"system_calls.h": text}}
    return context.cache.obtain("programs", inputs, "headers of guest programs", write).path / "guest"


def system_calls_header(calls: Iterable[SystemCall]) -> str:
    """The C header of the system calls' numbers, for both architectures."""
    listed = list(calls)
    return _HEADER.format(i386=_numbers(listed, "i386"), x86_64=_numbers(listed, "x86_64"))


def _numbers(calls: Iterable[SystemCall], arch: Arch) -> str:
    numbers = {call.name: number for call in calls if (number := call.number(arch, "auto")) is not None}
    in_order = sorted(numbers.items(), key=lambda item: item[1])
    return "".join(f"#define __NR_{name} {number}\n#define SYS_{name} __NR_{name}\n" for name, number in in_order)
