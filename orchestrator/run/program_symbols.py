# SPDX-License-Identifier: GPL-2.0-only
"""The BPF programs that a guest has loaded, as symbols for gdb: the kernel's image and its modules lack them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from orchestrator.arch import Arch
from orchestrator.errors import HostError
from orchestrator.guest.guest import Guest
from orchestrator.probes.symbols import KALLSYMS, KALLSYMS_MAX
from orchestrator.process import run
from orchestrator.profile.counted.generated_code import BPF_PROGRAM, BPF_TRAMPOLINE, listed_code

_OBJCOPY_LIMIT = 120.0
_FORMATS: Mapping[Arch, Sequence[str]] = {
    "i386": ("-O", "elf32-i386", "-B", "i386"),
    "x86_64": ("-O", "elf64-x86-64", "-B", "i386:x86-64"),
}
_LARGEST = 1 << 16
"""Bytes of a program's code, whose end the kernel does not list; most have a few hundred."""
_MOST = 256
_SYMBOLS = {rf"{BPF_PROGRAM}(\w{{1,64}})": r"bpf_prog_\1", BPF_TRAMPOLINE: "bpf_trampoline"}
"""The symbols for gdb by what profiles call such code; a name with other letters could be an option to objcopy."""
_FILE = "bpf-programs.o"


def loaded_programs(guest: Guest) -> Mapping[int, str]:
    """The BPF programs and trampolines by address, as profiles name them. To list them takes a guest a second.

    Raises GuestError.
    """
    made = listed_code(guest.get(KALLSYMS, largest=KALLSYMS_MAX))
    return dict([pair for pair in made if _symbol(pair[1]) is not None][:_MOST])


def _symbol(title: str) -> str | None:
    patterns = ((re.fullmatch(pattern, title, re.ASCII), symbol) for pattern, symbol in _SYMBOLS.items())
    return next((match.expand(symbol) for match, symbol in patterns if match), None)


def added_programs(folder: Path, programs: Mapping[int, str], arch: Arch) -> str:
    """Write a file of symbols such as ``bpf_prog_NAME`` into the folder; returns gdb's command that reads it.

    Raises HostError if binutils cannot write it.
    """
    content = folder / "bpf-code"
    content.write_bytes(bytes(_LARGEST))
    starts = sorted(programs)
    words, places = list[str](), ""
    for number, start in enumerate(starts):
        section, size = f".bpf{number}", min([_LARGEST, *(after - start for after in starts[number + 1 :][:1])])
        code = folder / f"bpf-code{number}"
        code.write_bytes(bytes(size))
        words += ["--add-section", f"{section}={code}", "--set-section-flags", f"{section}=alloc,code,readonly"]
        words += ["--add-symbol", f"{_symbol(programs[start])}={section}:0,function,global"]
        places += f" -s {section} {start:#x}"
    file = folder / _FILE
    made = run(["objcopy", "-I", "binary", *_FORMATS[arch], *words, str(content), str(file)], time_limit=_OBJCOPY_LIMIT)
    made.or_raise(HostError, "the symbols of BPF programs cannot be written for a debugger")
    return f"add-symbol-file {shlex.quote(str(file))}{places}"
