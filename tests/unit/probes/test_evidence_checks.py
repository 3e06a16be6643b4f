# SPDX-License-Identifier: GPL-2.0-only
"""Is a probe accepted only when both sources of evidence agree and are right?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.probes import Mechanism, ProbeKind, probes
from orchestrator.errors import EvidenceError
from orchestrator.probes.evidence import (
    OUT_OF_TREE,
    UNSIGNED,
    Observation,
    check_armed,
    check_same,
    check_step,
    check_taint,
    check_untouched,
)
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.traced_functions import Traced

ORIGINAL = bytes.fromhex("8b442404 53 89c3 85d2 7416 8b10 31c0 90")
POINT = ProbePoint("f", 5, 0xC1107745, ORIGINAL)

UNTOUCHED = Observation(ORIGINAL, None)
INT3 = Observation(b"\xcc" + ORIGINAL[1:], "")
JUMP = Observation(bytes.fromhex("e9b6887a0c") + ORIGINAL[5:], "[OPTIMIZED]")
FTRACE = Observation(bytes.fromhex("e8b6887a0c") + ORIGINAL[5:], "[FTRACE]", traced=Traced(1, 1))
DJPROBE = Observation(bytes.fromhex("e9b6887a0c") + ORIGINAL[5:], "")
DETOUR = Observation(INT3.live, "[OPTIMIZED]")
SEEN: dict[Mechanism, Observation] = {
    "none": UNTOUCHED,
    "int3": INT3,
    "jump": JUMP,
    "detour": DETOUR,
    "ftrace": FTRACE,
    "jmp": DJPROBE,
}
"""What a probe by kprobes, or none, looks like."""

HOOK_POINT = ProbePoint("lab_syscall_hook", 0, 0xC1A0B5C4, bytes(4))
BRANCH_POINT = ProbePoint("trace_sys_enter", 0, 0xC1107745, bytes.fromhex("0f1f440000"))


def kind_of(mechanism: Mechanism) -> ProbeKind:
    """A kind of probe by kprobes with this mechanism, or the one without a probe."""
    return next(
        kind for kind in probes().values() if kind.mechanism == mechanism and kind.site in ("kprobe", "function")
    )


def test_the_test_tables_have_every_mechanism() -> None:
    assert {*SEEN, "pointer", "tracepoint", "direct", "call"} == {probe.mechanism for probe in probes().values()}


@pytest.mark.parametrize("mechanism", list(SEEN))
@pytest.mark.parametrize("seen", list(SEEN))
def test_a_mechanism_is_proved_by_its_own_traces_alone(mechanism: Mechanism, seen: Mechanism) -> None:
    if mechanism == seen:
        check_armed(kind_of(mechanism), POINT, SEEN[seen], "after loading")
        return
    with pytest.raises(EvidenceError, match="after loading"):
        check_armed(kind_of(mechanism), POINT, SEEN[seen], "after loading")


def test_a_hook_is_armed_by_a_pointer() -> None:
    armed = Observation(bytes.fromhex("003081d0"), None)
    check_armed(probes()["hook"], HOOK_POINT, armed, "now")
    assert armed.pointer == 0xD0813000
    with pytest.raises(EvidenceError, match="not armed by a pointer"):
        check_armed(probes()["hook"], HOOK_POINT, Observation(bytes(4), None), "now")
    with pytest.raises(EvidenceError, match="not the original 00 00 00 00"):
        check_untouched(HOOK_POINT, armed, "after disarming")


@pytest.mark.parametrize("jump", ["e91b000000", "eb1b440000"])
def test_a_tracepoint_is_armed_by_a_jump_that_the_kernel_knows_of(jump: str) -> None:
    kind = probes()["tracepoint"]
    check_armed(kind, BRANCH_POINT, Observation(bytes.fromhex(jump), "[ENABLED]"), "now")
    with pytest.raises(EvidenceError, match="the kernel lists no probe"):
        check_armed(kind, BRANCH_POINT, Observation(bytes.fromhex(jump), None), "now")
    with pytest.raises(EvidenceError, match="not armed by a static branch that is taken"):
        check_armed(kind, BRANCH_POINT, Observation(BRANCH_POINT.original, "[ENABLED]"), "now")


def test_the_tracer_may_make_its_call_anew() -> None:
    kind = probes()["ftrace"]
    observation, other_observation = (
        Observation(bytes.fromhex(f"e8{n:02x}00000090"), "[TRACED]", traced=Traced(1, 1)) for n in (1, 2)
    )
    check_armed(kind, BRANCH_POINT, observation, "now")
    check_same(kind, observation, other_observation, BRANCH_POINT, "now")
    with pytest.raises(EvidenceError, match="changed from e8"):
        check_same(kind, observation, Observation(BRANCH_POINT.original, None), BRANCH_POINT, "now")


@pytest.mark.parametrize(
    ("mechanism", "seen", "words"),
    [
        ("int3", JUMP, r"not armed by int3: .* e9 b6 .* as \[OPTIMIZED\]; that is the kernel's jump optimisation"),
        ("int3", FTRACE, r"that is the function tracer"),
        ("int3", DJPROBE, r"without a flag; that is a djprobe's own jump"),
        ("int3", UNTOUCHED, r"lists no probe at f\+0x5"),
        ("int3", Observation(INT3.live, None), r"lists no probe"),
        ("int3", Observation(ORIGINAL, ""), r"that is no mechanism of the lab's"),
        ("int3", Observation(INT3.live, "[DISABLED]"), r"as \[DISABLED\]"),
        ("int3", Observation(INT3.live[:-1] + b"\0", ""), r"more than the first byte changed"),
        # Listed as optimised before the jump is in place, and the other way round.
        ("jump", DETOUR, r"not armed by the kernel's jump optimisation: .*; that is int3, waiting to be optimised"),
        ("jump", Observation(JUMP.live, ""), r"not armed by the kernel's jump optimisation"),
        ("jmp", JUMP, r"that is the kernel's jump optimisation"),
        ("ftrace", INT3, r"not armed by the function tracer: .* that is int3"),
        ("none", INT3, r"not the original"),
        ("none", Observation(ORIGINAL, ""), r"still lists a probe"),
    ],
)
def test_what_was_found_instead_is_named(mechanism: Mechanism, seen: Observation, words: str) -> None:
    with pytest.raises(EvidenceError, match=words):
        check_armed(kind_of(mechanism), POINT, seen, "now")


def test_bytes_and_list_must_both_be_as_before() -> None:
    check_untouched(POINT, UNTOUCHED, "after unloading")
    with pytest.raises(
        EvidenceError, match=r"after unloading, the bytes at f\+0x5 are cc 44 .* not the original 8b 44"
    ):
        check_untouched(POINT, INT3, "after unloading")
    with pytest.raises(EvidenceError, match="still lists a probe"):
        check_untouched(POINT, Observation(ORIGINAL, "[DISABLED]"), "after unloading")
    with pytest.raises(EvidenceError, match="not the original"):
        check_untouched(POINT, Observation(ORIGINAL[:-1] + b"\0", None), "after unloading")


@pytest.mark.parametrize("before", list(SEEN.values()))
@pytest.mark.parametrize("after", list(SEEN.values()))
def test_a_probe_stays_as_it_was(before: Observation, after: Observation) -> None:
    if before is after:
        check_same(probes()["kprobe"], before, replace(before), POINT, "during the timing")
        return
    with pytest.raises(EvidenceError, match=r"during the timing, f\+0x5 changed from"):
        check_same(probes()["kprobe"], before, after, POINT, "during the timing")


def test_a_probe_optimised_in_between_is_named() -> None:
    with pytest.raises(EvidenceError, match=r"cc 44 .* \(int3\) to e9 .* \(the kernel's jump optimisation\)"):
        check_same(probes()["kprobe"], INT3, JUMP, POINT, "after timing")


@pytest.mark.parametrize("mechanism", ["int3", "jump", "detour", "ftrace", "jmp"])
def test_a_second_kprobe_at_the_place_is_no_proof(mechanism: Mechanism) -> None:
    """The kernel lists each with a line of its own, and the place looks the same."""
    two = replace(SEEN[mechanism], probes=2)
    with pytest.raises(EvidenceError, match=r"^now, the kernel lists 2 kprobes at f\+0x5, not one"):
        check_armed(kind_of(mechanism), POINT, two, "now")
    with pytest.raises(EvidenceError, match=r"^now, the kprobes at f\+0x5 became 2, from 1"):
        check_same(kind_of(mechanism), SEEN[mechanism], two, POINT, "now")


@pytest.mark.parametrize(
    ("kind", "right"),
    [
        ("kprobe", "single-stepped"),
        ("kprobe-boosted", "boosted"),
        ("kprobe-fallback", "single-stepped"),
        ("kretprobe", "single-stepped"),
        ("kretprobe-boosted", "boosted"),
        ("jprobe", "single-stepped"),
    ],
)
def test_the_kernel_goes_on_as_the_kind_says(kind: str, right: str) -> None:
    for step in ("single-stepped", "boosted", "emulated", ""):
        if step == right:
            check_step(probes()[kind], step)
            continue
        with pytest.raises(EvidenceError, match=f"^the probed instruction is {step}, and for {kind} it must"):
            check_step(probes()[kind], step)


@pytest.mark.parametrize("kind", ["kprobe-optimized", "kprobe-detour", "kprobe-ftrace", "kretprobe-optimized"])
def test_a_probe_that_does_not_step_may_do_so_in_any_way(kind: str) -> None:
    check_step(probes()[kind], "boosted")


@pytest.mark.parametrize("mask", [0, OUT_OF_TREE, UNSIGNED, OUT_OF_TREE | UNSIGNED])
def test_loading_our_module_may_taint(mask: int) -> None:
    check_taint(mask)


def test_work_may_taint_by_what_it_is_for_alone() -> None:
    livepatch = 1 << 15
    check_taint(OUT_OF_TREE | livepatch, livepatch)
    with pytest.raises(EvidenceError, match=str(livepatch | 1 << 9)):
        check_taint(livepatch | 1 << 9, livepatch)


@given(st.integers(0, 18), st.sampled_from([0, OUT_OF_TREE, OUT_OF_TREE | UNSIGNED]))
def test_any_other_taint_fails_the_cell(bit: int, ours: int) -> None:
    mask = 1 << bit | ours
    if 1 << bit in (OUT_OF_TREE, UNSIGNED):
        check_taint(mask)
        return
    with pytest.raises(EvidenceError, match=str(mask)):
        check_taint(mask)


@pytest.mark.parametrize(
    ("live", "target"),
    [("e900000000", 5), ("e9fbffffff", 0), ("e8ffffff7f", 5 + 0x7FFFFFFF), ("cc00000000", None), ("eb00000000", None)],
)
def test_where_a_jump_leads(live: str, target: int | None) -> None:
    assert Observation(bytes.fromhex(live) + bytes(11), "").jump_target == target


def test_a_point_is_written_as_the_kernel_writes_it() -> None:
    assert POINT.name == "f+0x5"
    assert ProbePoint("f", 0, 1, ORIGINAL).name == "f"
