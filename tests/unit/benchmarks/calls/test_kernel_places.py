# SPDX-License-Identifier: GPL-2.0-only
"""Is a probe at a named point refused before a boot where the kernel would refuse it, and never where it might not?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from built_code import build_tree
from host_toolchain import a_kernel
from loaded_tables import calls_experiment

from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.benchmarks.calls.call_cells import CallCell
from orchestrator.benchmarks.calls.preparation import place_refusal, set_up, unsupported_reason
from orchestrator.experiment.plan import plan

SOURCE = Path(__file__).parents[2] / "probes" / "points" / "places.S"
DEBIAN = {
    "CONFIG_DYNAMIC_FTRACE": "y",
    "CONFIG_KPROBES_ON_FTRACE": "y",
    "CONFIG_OPTPROBES": "y",
    "CONFIG_PREEMPTION": "y",
    "CONFIG_RETHOOK": "y",
}
BOOSTING = {"CONFIG_OPTPROBES": "y"}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image of a kernel with some functions, and the tables that tell of them."""
    return build_tree(tmp_path_factory.mktemp("tree"), SOURCE, 4)


def kernel_in(tree: Path, config: dict[str, str] = DEBIAN) -> Kernel:
    return a_kernel("debian-686", config, headers=tree, code_folder=tree)


def a_cell(probe: str, point: str) -> CallCell:
    described = calls_experiment(
        kernels=["debian-686"],
        machines=[{"cpu": "pentium4"}],
        probes=[probe],
        points=[point],
        benchmark={"name": "gtodbench"},
    )
    return plan(described).cells[-1]


@pytest.mark.parametrize(
    ("probe", "point", "word"),
    [
        ("kprobe", "probed+0x0", "function tracer"),
        ("kprobe-optimized", "secret", "NOKPROBE_SYMBOL"),
        ("djprobe", "untraceable", "noinstr"),
        ("kretprobe", "probed+0x6", "entry"),
        ("djprobe", "probed+0x6", "entry, at +0x5"),
        ("kprobe", "probed", None),
        ("kprobe", "probed+0x5", None),
        ("kprobe-ftrace", "probed", None),
        # What only the kernel's own rules decide is tried, and so is what the image does not have.
        ("kprobe", "probed+0xd", None),
        ("kprobe", "probed+0x21", None),
        ("kprobe-optimized", "probed+0xb", None),
        ("kprobe-fallback", "probed+0xb", None),
        ("kprobe", "of_a_module+0xd", None),
        ("tracepoint", "probed+0xd", None),
        ("none", "probed+0xd", None),
    ],
)
def test_what_the_kernel_refuses(tree: Path, probe: str, point: str, word: str | None) -> None:
    found = place_refusal(kernel_in(tree), a_cell(probe, point), {})
    assert (found is None) is (word is None)
    assert (word or "") in (found or "")


def test_why_a_cell_cannot_be_is_said_once(tree: Path) -> None:
    """First what a guest has found out, then what the configuration lacks, then what the kernel's code says."""
    kernel = kernel_in(tree, {**DEBIAN, "CONFIG_KALLSYMS_ALL": "y"})
    named = a_cell("kprobe-optimized", "secret")
    reason = place_refusal(kernel, named, {})
    assert reason is not None
    assert unsupported_reason(kernel, named) == reason
    cell = replace(named, task=replace(named.task, refusal="these calls do not execute it"))
    assert unsupported_reason(kernel, cell) == "these calls do not execute it"
    assert "OPTPROBES" in (unsupported_reason(kernel_in(tree, {}), named) or "")
    assert unsupported_reason(kernel, a_cell("kprobe", "probed")) is None


def test_a_kernel_whose_code_is_not_at_hand_is_booted(tree: Path) -> None:
    without_code = replace(kernel_in(tree), code_folder=Path("/nowhere"))
    assert place_refusal(without_code, a_cell("kprobe", "secret"), {}) is None


def test_the_functions_of_calls_are_not_named_points(tree: Path) -> None:
    cell = a_cell("kprobe", "probed+0x0")
    assert place_refusal(kernel_in(tree), replace(cell, point=None), {}) is None


@pytest.mark.parametrize(
    ("probe", "note"), [("kprobe", "this kernel boosts kprobes"), ("kprobe-fallback", "it could be optimised")]
)
def test_why_a_kprobe_is_single_stepped(tree: Path, probe: str, note: str) -> None:
    stepped = f"single-stepped because of a post-handler; without one {note}"
    assert set_up(kernel_in(tree, BOOSTING), a_cell(probe, "probed+0x5")).notes == (stepped,)
