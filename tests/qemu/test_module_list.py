# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest load every driver of its list, however long that is?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.artifacts.cache import BuildContext
from orchestrator.artifacts.kernels import ready_kernel
from orchestrator.catalog.cpus import cpu
from orchestrator.catalog.kernels import kernel
from orchestrator.files import Entry, archive
from orchestrator.guest.guest import Guest
from orchestrator.run.machines import Hardware, machine_for

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]


def complaints_about(text: str, context: BuildContext, folder: Path) -> Sequence[str]:
    """What the guest's first program says of a list of drivers; each that it looks for and does not find is a line."""
    built = ready_kernel(context, kernel("lab-i386-up"))
    machine = machine_for(context, built, Hardware(cpu("pentium4"), 1, 256, "tcg"))
    image = folder / "initramfs"
    image.write_bytes(machine.initramfs.read_bytes() + archive([Entry.file("etc/modules", text.encode())]))
    with Guest(dataclasses.replace(machine, initramfs=image), folder) as guest:
        return [line for line in guest.console.whole_lines(0)[0] if line.startswith("init: ")]


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_long_list_is_read_to_its_end(end: str, workshop: BuildContext, tmp_path: Path) -> None:
    paths = [f"/lib/modules/{'x' * (n % 60)}{n}.ko" for n in range(300)]
    text = "\n".join(paths) + end
    assert len(text) > 3 * 4096
    assert complaints_about(text, workshop, tmp_path) == [f"init: cannot load {path}: error 2" for path in paths]


def test_what_is_too_long_for_a_path_is_reported(workshop: BuildContext, tmp_path: Path) -> None:
    complaints = complaints_about("/first.ko\n" + "y" * 5000 + "\n/last.ko\n", workshop, tmp_path)
    assert complaints[0] == "init: cannot load /first.ko: error 2"
    assert complaints[1].startswith("init: cannot load yyyy")
    assert complaints[1].endswith("yyyy: error 36")  # ENAMETOOLONG
    assert complaints[-1] == "init: cannot load /last.ko: error 2"
