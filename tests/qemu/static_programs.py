# SPDX-License-Identifier: GPL-2.0-only
"""Freestanding programs of the tests', compiled as the guests' own are."""

from __future__ import annotations

from pathlib import Path

from orchestrator.arch import Arch
from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.compiler import compile_sources
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.artifacts.toolchain import guest_toolchain
from orchestrator.paths import data_dir


def compile_program(context: BuildContext, arch: Arch, main: Path, target: Path) -> None:
    """Compile a program that includes what it needs of ``images/guest``."""
    folders = [data_dir("images") / "guest", guest_headers(context)]
    compile_sources(guest_toolchain(context), arch, [main, *included(read_c_source(main), folders)], folders, target)
