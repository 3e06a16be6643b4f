# SPDX-License-Identifier: GPL-2.0-only
"""Is what a guest has answered about a place known without a guest, of this kernel and CPU alone?"""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from tiny_modules import tiny_kernel

from orchestrator.artifacts.cache import Cache
from orchestrator.catalog.probes import probes
from orchestrator.probes.place_answers import PlaceAnswers
from orchestrator.probes.placement import (
    DECIDED_AT_BOOT,
    NO_JUMP,
    POSSIBLE,
    FunctionPlaces,
    Possibility,
    ProbePlace,
    impossible,
)


@pytest.fixture
def answers(tmp_path: Path) -> PlaceAnswers:
    return PlaceAnswers(Cache(tmp_path / "cache"), tiny_kernel(tmp_path / "kernel"), "xeon-e5410")


def function(first: Possibility, second: Possibility) -> FunctionPlaces:
    places = [
        ProbePlace(0, b"\x90", False, True, {"kprobe": DECIDED_AT_BOOT, "optimised": first}),
        ProbePlace(1, b"\x90", False, False, {"kprobe": impossible("noinstr"), "optimised": second}),
    ]
    return FunctionPlaces("vfs_read", 0x1000, 0x1002, places)


def test_what_a_kernel_cannot_optimise_is_so_for_each_kind_that_it_optimises(answers: PlaceAnswers) -> None:
    for kind in ("kprobe-optimized", "bpf-kprobe-optimized", "kprobe"):
        assert answers.known(probes()[kind], "vfs_read", 3) is None
    answers.keep(probes()["kprobe-optimized"], "vfs_read", 3, NO_JUMP)
    assert answers.known(probes()["kprobe-optimized"], "vfs_read", 3) == NO_JUMP
    assert answers.known(probes()["bpf-kprobe-optimized"], "vfs_read", 3) == NO_JUMP
    assert answers.known(probes()["kprobe"], "vfs_read", 3) is None
    assert answers.known(probes()["kprobe-optimized"], "vfs_read", 4) is None


def test_a_kind_has_reasons_of_its_own(answers: PlaceAnswers) -> None:
    answers.keep(probes()["kprobe"], "vfs_read", 3, "it is emulated, and must be single-stepped")
    assert answers.known(probes()["kprobe"], "vfs_read", 3) == "it is emulated, and must be single-stepped"
    assert answers.known(probes()["kprobe-boosted"], "vfs_read", 3) is None


def test_another_kernel_and_another_cpu_have_answers_of_their_own(answers: PlaceAnswers) -> None:
    answers.keep(probes()["kprobe-optimized"], "vfs_read", 3, NO_JUMP)
    spec = answers.kernel.spec.model_copy(update={"kernel_parameters": ["mitigations=auto"]})
    others = (
        replace(answers, cpu="pentium4"),
        replace(answers, kernel=replace(answers.kernel, key="another")),
        replace(answers, kernel=replace(answers.kernel, spec=spec)),
    )
    assert [place_answers.known(probes()["kprobe-optimized"], "vfs_read", 3) for place_answers in others] == [None] * 3


def module_with(file: Path, *functions: str, code: str = "nop") -> None:
    """A module's file with functions of this code."""
    text = "".join(f"\t.type {name}, @function\n{name}:\n\t{code}\n\tret\n" for name in functions)
    text += '\t.section .modinfo\n\t.asciz "license=GPL"\n'
    file.parent.mkdir(exist_ok=True)
    subprocess.run(["gcc", "-c", "-x", "assembler", "-", "-o", str(file)], input=text.encode(), check=True)


def test_an_answer_about_a_module_s_function_is_of_this_module_and_its_code_alone(answers: PlaceAnswers) -> None:
    kind, folder = probes()["kprobe"], answers.kernel.modules / "mods"
    kernel = replace(answers.kernel, modules=folder)
    mine, theirs = (replace(answers, kernel=kernel, modules=[name]) for name in ("mine", "theirs"))
    module_with(folder / "mine.ko", "mine_read", code="nop")
    module_with(folder / "theirs.ko", "mine_read", code="nop")
    mine.keep(kind, "mine_read", 5, "it is emulated")
    assert mine.known(kind, "mine_read", 5) == "it is emulated"
    assert theirs.known(kind, "mine_read", 5) is None
    module_with(folder / "mine.ko", "mine_read", code="leave")
    assert mine.known(kind, "mine_read", 5) is None
    module_with(folder / "mine.ko", "mine_read", code="nop")  # at another time: the content counts
    assert mine.known(kind, "mine_read", 5) == "it is emulated"


def test_where_the_code_is_not_known_nothing_is_kept(answers: PlaceAnswers) -> None:
    kind, folder = probes()["kprobe"], answers.kernel.modules / "mods"
    both = replace(answers, kernel=replace(answers.kernel, modules=folder), modules=["mine", "theirs"])
    for name in both.modules:
        module_with(folder / f"{name}.ko", "mine_read")
    both.keep(kind, "mine_read", 5, "which of them?")
    assert both.known(kind, "mine_read", 5) is None
    (folder / "theirs.ko").write_bytes(b"no module")
    both.keep(kind, "mine_read", 5, "who knows?")
    assert both.known(kind, "mine_read", 5) is None


def test_a_disassembly_s_answers_are_known_to_the_next_one_and_to_a_run(answers: PlaceAnswers) -> None:
    before = function(DECIDED_AT_BOOT, DECIDED_AT_BOOT)
    answers.keep_all(before, function(impossible(NO_JUMP), POSSIBLE))
    first, second = answers.known_of(before).places
    assert first.verdicts["optimised"] == impossible(NO_JUMP)
    assert first.verdicts["kprobe"] == second.verdicts["optimised"] == DECIDED_AT_BOOT
    assert second.verdicts["kprobe"] == impossible("noinstr")  # the image says that
    assert answers.known(probes()["kprobe-optimized"], "vfs_read", 0) == NO_JUMP
