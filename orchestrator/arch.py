# SPDX-License-Identifier: GPL-2.0-only
"""Facts about x86. The host and QEMU are x86_64; guests are i386 or x86_64."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Arch = Literal["i386", "x86_64"]
"""An architecture as the kernel's build system calls it (``ARCH``)."""

QEMU = "qemu-system-x86_64"
INT3, CALL, JMP = 0xCC, 0xE8, 0xE9
"""Opcodes that probes write over code: a breakpoint, and a near call and jump with a 32-bit offset."""
BPF_TARGET = "-D__TARGET_ARCH_x86"
"""Selects the registers that the macros of <bpf/bpf_tracing.h> read."""


@dataclass(frozen=True)
class Architecture:
    """One word size of x86.

    ``word`` is the size of a pointer in bytes, ``option`` the kernel's configuration option, ``machine`` the ELF
    machine, ``debian`` Debian's name of the architecture, ``loader`` the path of the dynamic loader.
    """

    name: Arch
    word: int
    option: str
    machine: str
    debian: str
    loader: str

    @property
    def pointer(self) -> str:
        return "<I" if self.word == 4 else "<Q"

    @property
    def gcc_flag(self) -> str:
        return f"-m{8 * self.word}"

    @property
    def triplet(self) -> str:
        """Debian's multiarch name, as in /usr/lib/x86_64-linux-gnu."""
        return f"{self.name}-linux-gnu"

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Folders that Debian's dynamic loader searches, relative to the root, without symbolic links."""
        return (f"usr/lib/{self.triplet}", *(("usr/lib64",) if self.word == 8 else ()), "usr/lib")


I386 = Architecture("i386", 4, "CONFIG_X86_32", "EM_386", "i386", "/lib/ld-linux.so.2")
X86_64 = Architecture("x86_64", 8, "CONFIG_X86_64", "EM_X86_64", "amd64", "/lib64/ld-linux-x86-64.so.2")
ARCHITECTURES: Mapping[str, Architecture] = {architecture.name: architecture for architecture in (I386, X86_64)}
OF_MACHINE: Mapping[str, Arch] = {architecture.machine: architecture.name for architecture in (I386, X86_64)}
HOST = X86_64
"""The architecture of QEMU, the compilers and the kernel's build tools."""
