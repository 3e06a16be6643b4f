# SPDX-License-Identifier: GPL-2.0-only
"""An initramfs with work in it that the guest does by itself, before the host sends anything.

Input from the host arrives at a moment that the guest's clock does not determine. Unattended work receives none, so on
the exact clock two guests with the same work agree in every instruction, timer ticks included.
"""

from __future__ import annotations

import io
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from orchestrator.cpio import Entry, write_archive
from orchestrator.paths import data_dir
from orchestrator.steps import step

FOLDER = "/sealed"
"""In the guest. The name is part of the work: with another one the totals move in their fifth digit."""
OUTPUT = f"{FOLDER}/output"
"""In the guest: what the work printed, and the wait status it ended with, as init.c writes them."""
STATUS = f"{FOLDER}/status"

_SCRIPT = "work.sh"
STEPS = "steps.sh"
"""What every script of unattended work includes."""


_PROGRESS = "lab: "


def progress(line: str) -> str | None:
    """The progress in a line of the console, behind the kernel's time stamp; None in any other line."""
    _, mark, words = line.partition(_PROGRESS)
    return words if mark else None


def with_work(initramfs: Path, script: str, settings: Mapping[str, int], files: Mapping[str, bytes]) -> bytes:
    """The initramfs with ``images/unattended/SCRIPT.sh`` as its work, and what that needs, in ``/sealed``.

    ``settings`` are the shell variables that the script finds in ``/sealed/settings``.
    """
    whole = io.BytesIO()
    write_work(whole, initramfs, script, settings, files)
    return whole.getvalue()


def write_work(
    target: BinaryIO,
    initramfs: Path,
    script: str,
    settings: Mapping[str, int | str],
    files: Mapping[str, bytes | Path],
) -> None:
    """Write what ``with_work`` returns, piece by piece: its files may be hundreds of megabytes on the host's disk."""
    scripts = unattended_scripts()
    text = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in settings.items())
    folder = FOLDER.removeprefix("/")
    content: Mapping[str, bytes | Path] = {
        _SCRIPT: scripts / f"{script}.sh",
        STEPS: scripts / STEPS,
        "settings": text.encode(),
        **files,
    }
    with step(f"write an initramfs with the work {script}"):
        with initramfs.open("rb") as file:
            shutil.copyfileobj(file, target)
        # The kernel unpacks one archive after the other.
        entries = [Entry.folder(folder), *(Entry.file(f"{folder}/{name}", data) for name, data in content.items())]
        write_archive(target, entries)


def unattended_scripts() -> Path:
    """Where the scripts of unattended work are."""
    return data_dir("images") / "unattended"
