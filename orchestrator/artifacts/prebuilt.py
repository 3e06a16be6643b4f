# SPDX-License-Identifier: GPL-2.0-only
"""A module that the user has built: its name, and whether a kernel would load it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import source_name
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.user_module import header, named_modinfo
from orchestrator.errors import UnsupportedError
from orchestrator.program import PROGRAM

_MACHINES = {"EM_386": "i386", "EM_X86_64": "x86_64", "EM_AARCH64": "arm64", "EM_ARM": "arm", "EM_RISCV": "riscv"}


def prebuilt(file: Path, kernel: Kernel) -> Module:
    """The module in a .ko file. Raises UnsupportedError for one of another kernel, ConfigError for no module."""
    info = named_modinfo(file)
    machine = _MACHINES.get(header(file, "e_machine"), "another processor")
    if machine != kernel.spec.arch:
        hint = f"name one that was built for {kernel.spec.arch}, or a kernel for {machine}"
        raise UnsupportedError(f"{file.name} is for {machine}, and this kernel is for {kernel.spec.arch}", hint=hint)
    built_for = info.get("vermagic", "").split(" ")[0]
    if built_for != kernel.release:
        source = f"./{source_name(file)}"
        raise UnsupportedError(
            f"{file.name} was built for kernel {built_for[:80] or 'unknown'}, and this one is {kernel.release}",
            hint=f"give its source, {source}, and the lab builds it for this kernel; "
            f"or build it first: {PROGRAM} kmod build {source} --kernel {kernel.spec.argument} --out .",
        )
    return Module(info["name"], file, hashlib.sha256(file.read_bytes()).hexdigest(), None)
