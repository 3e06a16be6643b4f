# SPDX-License-Identifier: GPL-2.0-only
"""An initramfs with unattended work: the guest runs it before the host sends anything.

Input from the host arrives at an instant that the guest's clock does not determine. Unattended work receives none, so
on the exact clock two guests with the same work agree in every instruction, timer ticks included.
"""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from orchestrator.cpio_archive import Entry, write_archive
from orchestrator.paths import data_dir
from orchestrator.steps import step

FOLDER = "/sealed"
"""A path in the guest. It affects the counts: another name changes the totals in their fifth digit."""
OUTPUT = f"{FOLDER}/output"
"""In the guest: the output of the work, and its wait status, as init.c writes them."""
STATUS = f"{FOLDER}/status"

STEPS = "steps.sh"
"""The file that every script of unattended work includes."""


def progress(line: str) -> str | None:
    """The progress report in a console line, without the kernel's time stamp; None for any other line."""
    _, mark, words = line.partition("lab: ")
    return words if mark else None


def write_work(
    target: BinaryIO, initramfs: Path, script: str, settings: Mapping[str, int | str], files: Mapping[str, bytes | Path]
) -> None:
    """Write ``initramfs``, followed by an archive in ``/sealed`` of ``images/unattended/SCRIPT.sh`` and ``files``.

    ``settings`` are the script's shell variables. ``files`` may be large: those on the host's disk are streamed.
    """
    scripts = unattended_scripts()
    text = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    folder = FOLDER.removeprefix("/")
    content: Mapping[str, bytes | Path] = {
        "work.sh": scripts / f"{script}.sh",
        STEPS: scripts / STEPS,
        "settings": text.encode(),
        **files,
    }
    with step(f"write an initramfs with the work {script}"):
        with initramfs.open("rb") as file:
            shutil.copyfileobj(file, target)
        # The kernel unpacks concatenated archives in turn.
        entries = [Entry.folder(folder), *(Entry.file(f"{folder}/{name}", data) for name, data in content.items())]
        write_archive(target, entries)


def unattended_scripts() -> Path:
    """The folder with the scripts of unattended work."""
    return data_dir("images") / "unattended"
