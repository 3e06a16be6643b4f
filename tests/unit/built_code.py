# SPDX-License-Identifier: GPL-2.0-only
"""A folder that is a build tree to ``code_of_tree``, made of one source that cannot boot."""

from __future__ import annotations

import subprocess
from pathlib import Path


def build_tree(folder: Path, source: Path, word: int, *options: str) -> Path:
    """Compile ``source`` as a kernel is, for pointers of ``word`` bytes, into the folder's vmlinux and System.map."""
    emulation = "elf_i386" if word == 4 else "elf_x86_64"
    model = ["-mregparm=3"] if word == 4 else ["-mcmodel=kernel"]
    # As a kernel's, addresses are in the upper half.
    text = "0xc1000000" if word == 4 else "0xffffffff81000000"
    argv = [
        "gcc",
        f"-m{8 * word}",
        *model,
        "-O2",
        "-fno-pic",
        "-no-pie",
        "-fcf-protection=none",
        "-nostdlib",
        "-static",
    ]
    argv += [f"-Wl,-m,{emulation},-Ttext={text},--build-id=none", *options]
    image = folder / "vmlinux"
    subprocess.run([*argv, "-o", image, source], check=True, timeout=600)
    listed = subprocess.run(["nm", "-n", image], check=True, timeout=600, capture_output=True, text=True)
    (folder / "System.map").write_text(listed.stdout)
    return folder
