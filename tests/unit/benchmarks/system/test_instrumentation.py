# SPDX-License-Identifier: GPL-2.0-only
"""Which of a run's instructions are the instrumentation's, and where has a kernel its markers?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from built_code import build_tree

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.artifacts.machine_code import decoded
from orchestrator.benchmarks.system.measurement import Instrumentation
from orchestrator.probes.recorder import Site
from orchestrator.probes.symbols import ModuleMemory, marker_code
from orchestrator.profile.counts import Code, Counts, Region
from orchestrator.profile.places import Function, Places

PLACES = Places(
    function_at=lambda address: (
        Function(0xC1000000, "vfs_read") if address < 0xC2000000 else Function(0xC8000000, "hit", "m")
    ),
    ranges=[range(0xC1000000, 0xC2000000), range(0xC8000000, 0xC8001000)],
    kernel_start=0xC0000000,
    program="all programs",
)
MODULE = ModuleMemory(0xC8000000, 0xC8001000)
PLAIN = {Code(0, ""): Counts(1000), Code(0xC1000000, "55"): Counts(100)}


def executed(more: dict[Code, int], *, module: ModuleMemory | None = None, sites: Sequence[Site] = ()) -> int:
    counts = {**PLAIN, **{code: Counts(number) for code, number in more.items()}}
    own = Instrumentation(PLACES, [range(0xC1000100, 0xC1000106)], module, sites)
    return own.executed(Region(sum(one.executed for one in counts.values()), counts))


def test_without_any_there_is_none() -> None:
    assert executed({}) == 0


def test_a_marker_is_its_load_its_test_and_its_branch() -> None:
    marker = {Code(0xC1000100, "b000"): 7, Code(0xC1000102, "84c0"): 7, Code(0xC1000104, "750a"): 7}
    assert executed({**marker, Code(0xC1000106, "90"): 7}) == 21


def test_the_module_counts_where_it_is_the_works_own() -> None:
    hook = {Code(0xC8000010, "55"): 3, Code(0xC8000011, "c3"): 3}
    assert executed(hook, module=MODULE) == 6
    assert executed(hook) == 0


def test_code_that_was_made_for_probes_counts() -> None:
    assert executed({Code(0xC7000000, "55"): 5}) == 5


@pytest.mark.parametrize(("live", "own"), [("cc8944240c", "cc"), ("e90000100a", "e90000100a")])
def test_a_probe_point_counts_as_long_as_its_probe_is_there(live: str, own: str) -> None:
    site = Site("vfs_read", 0xC1000200, bytes.fromhex("558944240c"), bytes.fromhex(live))
    assert executed({Code(0xC1000200, own): 9, Code(0xC1000200, "55"): 4}, sites=[site]) == 9


SOURCE = """
__asm__(".text\\n"
	"one:	movb $0, %al\\n	testb %al, %al\\n	jne 2f\\n"
	"3:	movb $0, %al\\n	testb %al, %al\\n	jne 5f\\n"
	"6:	ret\\n"
	"2:	xorl %ecx, %ecx\\n	call one\\n	decl %ecx\\n	jne 4f\\n	call one\\n"
	"4:	jmp 3b\\n"
	"5:	call one\\n	testl %eax, %eax\\n	jmp one\\n"
	".section __markers, \\"aw\\"\\n"
	".globl __start_kernel_markers, __stop_kernel_markers\\n"
	"__start_kernel_markers:	.WORD 0, one, 3b, 2b, 0, 3b, 6b, 5b\\n"
	"__stop_kernel_markers:\\n");
void _start(void) { }
"""


@pytest.mark.parametrize(("word", "directive"), [(4, "long"), (8, "quad")])
def test_markers_are_found_in_the_kernels_table(tmp_path: Path, word: int, directive: str) -> None:
    """The second one's call is followed by a copy of the function's own code."""
    source = tmp_path / "kernel.c"
    source.write_text(SOURCE.replace("WORD", directive))
    code = code_of_tree(build_tree(tmp_path, source, word))
    assert isinstance(code, KernelCode)
    one = code.address("one")
    assert one is not None
    names = [
        [instruction.name for instruction in decoded(code.read(span.start, len(span)), span.start, word)]
        for span in marker_code(code)
    ]
    assert marker_code(code)[0] == range(one, one + 6)
    assert names[:2] == [["mov", "test", "jne"]] * 2
    assert names[2:] == [["xor", "call", "dec", "jne", "call", "jmp"], ["call"]]


def test_a_kernel_without_markers_has_none(tmp_path: Path) -> None:
    source = tmp_path / "kernel.c"
    source.write_text("void _start(void) { }\n")
    code = code_of_tree(build_tree(tmp_path, source, 4))
    assert code is not None
    assert marker_code(code) == ()
