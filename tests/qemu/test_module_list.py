# SPDX-License-Identifier: GPL-2.0-only
"""Does a guest load every driver of its list, however long that is?"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.ready_kernels import ready_kernel
from orchestrator.catalog.kernels import kernel
from orchestrator.cpio_archive import Entry, archive
from orchestrator.experiment.guest_spec import GuestSpec
from orchestrator.guest.guest import Guest
from orchestrator.run.machines import machine_for

pytestmark = [pytest.mark.qemu, pytest.mark.kernels("lab-i386-up")]


def complaints_about(text: str, context: BuildContext, folder: Path) -> Sequence[str]:
    """What the guest's first program says of a list of drivers; each that it looks for and does not find is a line."""
    built = ready_kernel(context, kernel("lab-i386-up"))
    machine = machine_for(context, built, GuestSpec(cpu="pentium4", timing="tcg"))
    image = folder / "initramfs"
    image.write_bytes(machine.initramfs.read_bytes() + archive([Entry.file("etc/modules", text.encode())]))
    with Guest(dataclasses.replace(machine, initramfs=image), folder) as guest:
        return [line for line in guest.console.whole_lines(0)[0] if line.startswith("init: ")]


@pytest.mark.parametrize("end", [pytest.param("\n", marks=pytest.mark.nightly("a boot more")), ""])
def test_a_long_list_is_read_to_its_end_and_what_is_too_long_for_a_path_is_reported(
    end: str, workshop: BuildContext, tmp_path: Path
) -> None:
    paths = [f"/lib/modules/{'x' * (n % 60)}{n}.ko" for n in range(300)]
    text = "\n".join([*paths, "y" * 5000, "/last.ko"]) + end
    assert len(text) > 3 * 4096
    complaints = complaints_about(text, workshop, tmp_path)
    assert complaints[: len(paths)] == [f"init: cannot load {path}: error 2" for path in paths]
    too_long = complaints[len(paths)]
    assert too_long.startswith("init: cannot load yyyy")
    assert too_long.endswith("yyyy: error 36")  # ENAMETOOLONG
    assert complaints[-1] == "init: cannot load /last.ko: error 2"
