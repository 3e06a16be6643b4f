# SPDX-License-Identifier: GPL-2.0-only
"""Does a whole system's table say what a recorder's kprobes cost besides recording?"""

from __future__ import annotations

from pathlib import Path

import pytest
from host_toolchain import HOST_TOOLCHAIN

from orchestrator.artifacts.kernels import Kernel
from orchestrator.benchmarks.registry import kinds
from orchestrator.benchmarks.system.measurement import passed_notes, unsupported_reason
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.experiment.file import load_experiment
from orchestrator.experiment.plan import plan
from orchestrator.paths import data_dir


def a_kernel(config: dict[str, str], name: str = "lab-i386-up") -> Kernel:
    nowhere = Path("/nowhere")
    spec = kernel_spec(name)
    return Kernel(spec, "6.1", "key", nowhere, nowhere, nowhere, nowhere, {}, config, HOST_TOOLCHAIN)


@pytest.mark.parametrize(
    ("probe", "config", "words"),
    [
        ("none", {"CONFIG_OPTPROBES": "y"}, []),
        ("djprobe", {"CONFIG_OPTPROBES": "y"}, []),
        ("kprobe", {"CONFIG_OPTPROBES": "y"}, ["the post-handler", "the aggregator"]),
        ("kprobe", {}, ["the post-handler"]),
        ("jprobe", {"CONFIG_OPTPROBES": "y"}, ["the aggregator"]),
    ],
)
def test_a_kprobe_s_note_names_what_a_hit_passes(probe: str, config: dict[str, str], words: list[str]) -> None:
    planned = plan(load_experiment(data_dir("configs") / "lkst-events-2005.yaml", kinds()))
    cell = next(cell for cell in planned.cells if cell.row == probe)
    notes = passed_notes(a_kernel(config), cell)
    assert [note.startswith(f"a hit passes {word}") for note, word in zip(notes, words, strict=True)] == [True] * len(
        words
    )


@pytest.mark.parametrize(
    ("name", "other"),
    [("lab-i386-up@6.12", "lab-i386-up-markers@6.12"), ("debian-686", "lab-i386-up-markers")],
)
def test_a_kernel_without_markers_names_one_that_has_them(name: str, other: str) -> None:
    planned = plan(load_experiment(data_dir("configs") / "lkst-events-2005.yaml", kinds()))
    (cell,) = (cell for cell in planned.cells if cell.row == "hook")
    reason = unsupported_reason(a_kernel({"CONFIG_DEBUG_FS": "y"}, name), cell)
    assert reason is not None
    assert reason.endswith(f": hooks are in kernels that have markers, such as {other}")
