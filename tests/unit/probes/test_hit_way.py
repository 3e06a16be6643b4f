# SPDX-License-Identifier: GPL-2.0-only
"""Is it told how much of a program hits execute, and where they leave it without having done anything?"""

from __future__ import annotations

import pytest

from orchestrator.artifacts.object_lines import ObjectLine
from orchestrator.probes.hit_way import HitWay, LoadedCode, hit_way, is_reading, way_facts
from orchestrator.profile.stored.cell_profile import CodeLine

START, READS, WRITES = 0x1000, 0x8000, 0x9000
FILE = "/src/x.bpf.c"


def call(at: int, target: int) -> bytes:
    return b"\xe8" + (target - at - 5).to_bytes(4, "little", signed=True)


def jump(at: int, target: int) -> bytes:
    return b"\xe9" + (target - at - 5).to_bytes(4, "little", signed=True)


def program(target: int = READS, end: bytes = b"\xc3") -> LoadedCode:
    """``if (arg <= 5) { f(); *p += 1; } return 0;``, with a line each; the test is in line 11."""
    code = (
        b"\x48\x83\xff\x05"  # cmp rdi, 5
        b"\x77\x08"  # ja to the end, at 14
        + call(START + 6, target)
        + b"\x48\xff\x06"  # inc qword ptr [rsi]
        + b"\x31\xc0"  # xor eax, eax
        + end
    )
    places = {0: 10, 4: 11, 6: 12, 11: 13, 14: 14}
    loaded = [CodeLine(START + at, line, FILE, "") for at, line in places.items()]
    source = [ObjectLine(at, FILE, line) for at, line in places.items()]
    return LoadedCode(code, START, [*loaded, CodeLine(START + len(code))], source)


def executed(*places: int, times: int = 10) -> dict[int, int]:
    return {START + at: times for at in places}


def way(code: LoadedCode, counts: dict[int, int]) -> HitWay:
    found = hit_way(code, counts, lambda address: address == READS)
    assert found is not None
    return found


LEFT = executed(0, 4, 14, 16)
WHOLE = executed(0, 4, 6, 11, 14, 16)


def test_hits_that_are_filtered_away_leave_at_the_test() -> None:
    left = way(program(), LEFT)
    assert left == HitWay(executed=4, instructions=6, executed_lines=3, lines=5, leaves="x.bpf.c:11")
    said = "each hit leaves at x.bpf.c:11, and has changed nothing: 4 of 6 machine instructions, 3 of 5 lines"
    assert way_facts({"f": left}) == {
        "bpf_leaves": said,
        "bpf_leaves_at": "x.bpf.c:11",
        "bpf_executed": 4,
        "bpf_machine_instructions": 6,
        "bpf_executed_lines": 3,
        "bpf_lines": 5,
    }
    assert way_facts({"f": left, "g": way(program(), WHOLE)}) == {"bpf_leaves": f"f: {said}"}


def test_hits_that_do_something_do_not_leave_early() -> None:
    assert way(program(), WHOLE) == HitWay(6, 6, 5, 5, "")
    assert way_facts({"f": way(program(), WHOLE)})["bpf_executed"] == 6


@pytest.mark.parametrize(
    "counts",
    [
        executed(0, 4, 6, 11, 14, 16) | executed(6, 11, times=4),  # hits differ
        executed(0, 4, times=20) | executed(14, 16),
        executed(0, 14, 16),  # no way of the code
    ],
)
def test_of_hits_that_differ_only_the_share_is_told(counts: dict[int, int]) -> None:
    assert way(program(), counts).leaves == ""


def test_code_without_lines_is_left_at_an_instruction() -> None:
    bare = program()._replace(loaded=[], source=[])
    assert way(bare, LEFT) == HitWay(4, 6, 0, 0, "instruction 2")
    assert way(bare, LEFT).said.endswith("and has changed nothing: 4 of 6 machine instructions")
    assert way(bare, WHOLE).leaves == ""


def test_the_end_may_be_the_kernels_thunk_and_is_no_tail_call() -> None:
    code = program(end=jump(START + 16, READS))
    assert way(code, LEFT).leaves == "x.bpf.c:11"
    assert way(code, LEFT | {READS: 10}).leaves == ""  # other generated code


def test_what_the_verifier_has_removed_is_skipped() -> None:
    code = b"\x48\x89\x7d\xf8" + call(START + 4, READS) + b"\x8b\x06\x31\xc0\xc3"
    places = {0: 10, 4: 11, 9: 12, 11: 20}
    loaded = [CodeLine(START + at, line, FILE, "") for at, line in places.items()]
    source = [ObjectLine(8 * number, FILE, line) for number, line in enumerate((10, 11, 12, 13, 14, 20))]
    switched_off = LoadedCode(code, START, [*loaded, CodeLine(START + len(code))], source)
    counts = executed(0, 4, 9, 11, 13)
    assert way(switched_off, counts) == HitWay(5, 5, 4, 6, "x.bpf.c:12")
    assert way(switched_off._replace(source=source[:3] + source[5:]), counts).leaves == ""
    found = hit_way(switched_off, counts, lambda _: False)
    assert found is not None
    assert found.leaves == ""


def test_a_program_that_did_not_run_has_no_way() -> None:
    assert hit_way(program(), {READS: 10}, lambda _: True) is None
    assert way_facts({}) == {}


def test_functions_that_change_nothing_are_known_by_their_names() -> None:
    assert is_reading({"bpf_get_current_pid_tgid"})
    assert is_reading({"__htab_map_lookup_elem"})
    assert not is_reading({"bpf_get_stackid"})
    assert not is_reading(set())
