# SPDX-License-Identifier: GPL-2.0-only
"""What the lab knows of x86 by name. Hosts are x86_64, and so is QEMU, which runs guests of either word size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Arch = Literal["i386", "x86_64"]
"""An architecture as the kernel's build system calls it (``ARCH``)."""

QEMU = "qemu-system-x86_64"
INT3, CALL, JMP = 0xCC, 0xE8, 0xE9
"""What the code of probes begins with: a breakpoint, and a call and a jump over a distance of four bytes."""
BPF_TARGET = "-D__TARGET_ARCH_x86"
"""For the macros of <bpf/bpf_tracing.h>."""


@dataclass(frozen=True)
class Architecture:
    """A word size of x86: ``word`` is the bytes of a pointer, ``loader`` what starts a program with shared libraries.

    ``option`` is set in the configuration of its kernels, ``machine`` in the headers of its ELF files; ``debian`` is
    its name among Debian's architectures.
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
        """Debian's name of the folders of its headers and libraries."""
        return f"{self.name}-linux-gnu"

    @property
    def library_folders(self) -> tuple[str, ...]:
        """Where Debian's loader looks, below the root and without links."""
        return (f"usr/lib/{self.triplet}", *(("usr/lib64",) if self.word == 8 else ()), "usr/lib")


I386 = Architecture("i386", 4, "CONFIG_X86_32", "EM_386", "i386", "/lib/ld-linux.so.2")
X86_64 = Architecture("x86_64", 8, "CONFIG_X86_64", "EM_X86_64", "amd64", "/lib64/ld-linux-x86-64.so.2")
ARCHITECTURES: Mapping[str, Architecture] = {one.name: one for one in (I386, X86_64)}
OF_MACHINE: Mapping[str, Arch] = {one.machine: one.name for one in (I386, X86_64)}
HOST = X86_64
"""What QEMU, the compilers and the programs of a kernel's build are for."""
