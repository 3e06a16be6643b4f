# SPDX-License-Identifier: GPL-2.0-only
"""The lab's own programs for guests, compiled."""

from __future__ import annotations

from functools import partial
from itertools import chain
from pathlib import Path

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Artifact
from orchestrator.artifacts.compiler import STATIC, compile_sources, lab_files, lab_inputs
from orchestrator.artifacts.guest_headers import guest_headers
from orchestrator.artifacts.sources import included, read_c_source
from orchestrator.artifacts.toolchain import guest_toolchain
from orchestrator.paths import data_dir


def guest_programs(context: BuildContext, arch: str) -> Artifact:
    """``init``, ``agent`` and the benchmarks of ``images/guest`` as static programs for ``arch``."""
    folder, toolchain = data_dir("images") / "guest", guest_toolchain(context)
    folders = [folder, guest_headers(context)]
    mains = [file for file in sorted(folder.glob("*.c")) if not file.with_suffix(".h").exists()]
    sources = {main: [main, *included(read_c_source(main), folders)] for main in mains}
    inputs = {"arch": arch, **lab_inputs(toolchain, STATIC, chain.from_iterable(sources.values()))}

    def build(target: Path) -> None:
        context.say(f"compiling the guest's programs ({arch})")
        for main, files in sources.items():
            compile_sources(toolchain, arch, files, folders, target / main.stem)

    return context.cache.obtain("programs", inputs, f"guest programs, {arch}", build)


def bpf_tool(context: BuildContext, arch: str, name: str = "bpfprobe") -> Path:
    """``images/bpf/NAME.c``, which attaches BPF programs in a guest, as a static program for ``arch``."""
    toolchain, folders, files = lab_files(context, f"bpf/{name}.c")
    inputs = {"arch": arch, **lab_inputs(toolchain, STATIC, files)}
    compile_it = partial(compile_sources, toolchain, arch, files, folders)
    return context.cache.obtain_file("programs", inputs, f"{name}, {arch}", name, compile_it)
