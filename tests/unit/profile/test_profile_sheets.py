# SPDX-License-Identifier: GPL-2.0-only
"""Does a printed profile have every symbol, and a printed difference every change?"""

from __future__ import annotations

import io
import json
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from pydantic import ValidationError
from rich.console import Console

from orchestrator.errors import UsageError
from orchestrator.profile.printed.callgrind import callgrind_text
from orchestrator.profile.printed.flame_graph import flame_graph
from orchestrator.profile.printed.profile_sheets import cache_sheets, difference_sheet, profile_sheet
from orchestrator.profile.printed.stack_formats import folded_text
from orchestrator.profile.stored.cell_profile import (
    CacheProfile,
    CellProfile,
    InstructionCount,
    InstructionMisses,
    Misses,
    SymbolProfile,
)
from orchestrator.profile.stored.profile_difference import difference
from orchestrator.profile.stored.profiles_json import PrintedDifference, PrintedProfile
from orchestrator.report.markdown import render_sheets
from orchestrator.report.sheet import Sheet
from orchestrator.report.text import print_sheets


def profile(probe: str, **executed: int) -> CellProfile:
    """One with these symbols of the kernel in 500 calls, and twelve instructions a call of the program."""
    kernel = [
        SymbolProfile(name=name, place="kernel", address=0, instructions=(InstructionCount(0, "55", number),))
        for name, number in executed.items()
    ]
    program = SymbolProfile(
        name="callbench", place="user", address=0, instructions=(InstructionCount(0x8049000, "90", 6000),)
    )
    handler = SymbolProfile(
        name="kprobe_func",
        place="module",
        module="lab_kprobe",
        address=0x40,
        instructions=(InstructionCount(0, "c3", 500),),
    )
    return CellProfile(
        cell=f"pentium4/debian-686/{probe}/noop",
        arch="i386",
        calls=500,
        has_details=False,
        symbols=(*kernel, program, *([handler] if probe == "kprobe" else [])),
    )


BEFORE, AFTER = profile("none", read_tsc=1500), profile("kprobe", get_kprobe=8500, read_tsc=1501)


def printed(sheet: Sheet) -> str:
    out = io.StringIO()
    print_sheets([sheet], Console(file=out, width=100, color_system=None))
    return out.getvalue()


def test_a_profile_shows_repetitions_apart() -> None:
    """513 executions of a rep stos are one instruction, and 512 repetitions."""
    clears = SymbolProfile(
        name="clear_page",
        place="kernel",
        address=0,
        instructions=(InstructionCount(5, "f348ab", 513 * 500, taken=512 * 500),),
    )
    cell_profile = AFTER.model_copy(update={"symbols": (clears, *AFTER.symbols)})
    lines = [line.split() for line in printed(profile_sheet(cell_profile, {"traps": Fraction(2)})).splitlines()]
    assert ["per", "call", "share", "repetitions"] in lines
    assert ["clear_page", "513", "94.0", "%", "512"] in lines
    assert ["get_kprobe", "17", "3.1", "%", "-"] in lines
    assert ["all", "546.002", "100.0", "%", "512"] in lines
    assert ["without", "repetitions", "34.002", "6.2", "%", "-"] in lines
    printed_profile = PrintedProfile.of(cell_profile, {})
    assert printed_profile.repetitions == printed_profile.symbols[0].repetitions == 512


@pytest.mark.parametrize(
    ("code", "repeats"),
    [
        ("f3ab", True),
        ("f348a5", True),
        ("66f3a5", True),
        ("f26766a7", True),
        ("f2ae", True),
        ("f36c", True),
        ("ab", False),  # once
        ("f390", False),  # pause
        ("f30f1efa", False),  # endbr64
        ("f3c3", False),  # a return that an old branch predictor likes
        ("ebfe", False),
        ("", False),
    ],
)
def test_only_repeated_string_instructions_have_repetitions(code: str, repeats: bool) -> None:
    assert InstructionCount(0, code, 8, taken=7).repetitions == 7 * repeats


def test_a_profile_lists_symbols_their_sum_and_classes() -> None:
    lines = [line.split() for line in printed(profile_sheet(AFTER, {"traps": Fraction(2)})).splitlines()]
    assert ["get_kprobe", "17", "51.5", "%"] in lines
    assert ["kprobe_func", "[lab_kprobe+0x40]", "1", "3.0", "%"] in lines
    assert ["callbench", "(user", "space)", "12", "36.4", "%"] in lines
    assert ["read_tsc", "3.002", "9.1", "%"] in lines
    assert ["all", "33.002", "100.0", "%"] in lines
    assert ["traps", "2"] in lines


def test_a_difference_lists_what_differs_and_counts_the_rest() -> None:
    text = printed(difference_sheet(difference(BEFORE, AFTER)))
    lines = [line.split() for line in text.splitlines()]
    assert lines.index(["get_kprobe", "-", "17", "+17", "new"]) < lines.index(["read_tsc", "3", "3.002", "+0.002"])
    assert ["all", "15", "33.002", "+18.002"] in lines
    assert "callbench" not in text
    assert "1 symbol is equal in both." in text
    back = printed(difference_sheet(difference(AFTER, BEFORE)))
    assert ["get_kprobe", "17", "-", "-17", "gone"] in [line.split() for line in back.splitlines()]


def test_equal_profiles_have_no_rows_but_the_sum() -> None:
    text = printed(difference_sheet(difference(BEFORE, BEFORE)))
    assert ["all", "15", "15", "0"] in [line.split() for line in text.splitlines()]
    assert "2 symbols are equal in both." in text


def test_markdown_has_the_same_rows() -> None:
    text = render_sheets("Differences", [difference_sheet(difference(BEFORE, AFTER))])
    assert "| get\\_kprobe | - | 17 | +17 | new |" in text
    assert "| **all** | 15 | 33.002 | +18.002 |  |" in text


def test_json_has_numbers_per_call() -> None:
    plain = json.loads(PrintedProfile.of(AFTER, {"traps": Fraction(2)}).json_text())
    assert plain["instructions"] == 33.002
    assert plain["symbols"][0] == {
        "name": "get_kprobe",
        "place": "kernel",
        "module": None,
        "address": "0x0",
        "instructions": 17.0,
        "repetitions": 0.0,
        "misses": {},
    }
    found = json.loads(PrintedDifference.of(difference(BEFORE, AFTER)).json_text())
    assert (found["change"], found["equal"]) == (18.002, 1)
    assert found["symbols"][0] == {"symbol": "get_kprobe", "before": None, "after": 17.0, "change": 17.0}


def test_callgrind_has_each_instruction_and_the_sum() -> None:
    text = callgrind_text(AFTER)
    assert text.startswith("# callgrind format\nversion: 1\n")
    assert "positions: instr\nevents: Ir\nsummary: 16501\n" in text
    assert "\nob=lab_kprobe\nfn=kprobe_func\n0x40 500\n" in text
    assert "\nob=user\nfn=callbench\n0x8049000 6000\n" in text
    counts = [int(line.split()[1]) for line in text.splitlines() if line.startswith("0x")]
    assert sum(counts) == 16501


def test_callgrind_has_what_else_was_counted() -> None:
    counted = AFTER.model_copy(update={"has_details": True})
    assert "events: Ir Loads Stores Taken\nsummary: 16501 0 0 0\n" in callgrind_text(counted)


def cached(repeated: int = 1500) -> CellProfile:
    """The kprobe's profile, whose handler misses in the data cache and whose program misses in the other one."""
    caches = [
        CacheProfile(name="l1i", size=16384, ways=8, line=64, accesses=17000, misses=500, repeated=500),
        CacheProfile(name="l1d", size=8192, ways=4, line=64, accesses=9000, misses=1500, repeated=repeated),
        CacheProfile(name="l2", size=524288, ways=8, line=64, accesses=2000, misses=1000, repeated=1000),
        CacheProfile(name="dtlb", size=262144, ways=64, line=4096, accesses=9000, misses=0, repeated=0),
    ]
    missed = {
        "callbench": (InstructionMisses(0x8049000, "90", Misses(l1i=500)),),
        "kprobe_func": (InstructionMisses(0, "c3", Misses(l1d_loads=1000, l1d_stores=500, l2=1000)),),
    }
    symbols = [symbol.model_copy(update={"misses": missed.get(symbol.name, ())}) for symbol in AFTER.symbols]
    cell_profile = AFTER.model_copy(update={"symbols": tuple(symbols)})
    return CellProfile.model_validate({**cell_profile.model_dump(), "caches": caches})


def test_caches_list_the_symbols_that_miss() -> None:
    (sheet,) = cache_sheets(cached())
    assert "L1D 8 KiB, 4 ways of 64 bytes" in sheet.facts[1]
    assert "DTLB 64 pages, 64 ways" in sheet.facts[1]
    text = printed(sheet)
    assert "get_kprobe" not in text
    assert "kprobe_func [lab_kprobe+0x40]" in text
    assert [[row.label, *row.cells] for block in sheet.grid.blocks for row in block] == [
        ["kprobe_func [lab_kprobe+0x40]", "0", "-", "3", "100.0 %", "2", "100.0 %", "0", "-"],
        ["callbench (user space)", "1", "100.0 %", "0", "-", "0", "-", "0", "-"],
        ["all", "1", "100.0 %", "3", "100.0 %", "2", "100.0 %", "0", "-"],
        ["accesses", "34", "", "18", "", "4", "", "18", ""],
    ]
    assert "A second pass had equally many misses." in text
    assert "A second pass missed 3.2 times per call in L1D." in printed(cache_sheets(cached(1600))[0])
    assert not cache_sheets(AFTER)


def test_json_has_misses_where_caches_were_modelled() -> None:
    found = json.loads(PrintedProfile.of(cached(), {}).json_text())
    assert found["caches"][1] == {
        "name": "l1d",
        "size": 8192,
        "ways": 4,
        "line": 64,
        "accesses": 18.0,
        "hits": 15.0,
        "misses": 3.0,
        "misses_again": 3.0,
    }
    handler = found["symbols"][-1]
    assert handler["misses"] == {"l1i": 0, "l1d_loads": 2.0, "l1d_stores": 1.0, "l2": 2.0, "itlb": 0, "dtlb": 0}
    plain = PrintedProfile.of(AFTER, {})
    assert not plain.caches
    assert not plain.symbols[0].misses


def test_callgrind_has_misses_as_events() -> None:
    text = callgrind_text(cached())
    assert "events: Ir I1mr D1mr D1mw L2m ITLBm DTLBm\nsummary: 16501 500 1000 500 1000 0 0\n" in text
    assert "\n0x40 500 0 1000 500 1000 0 0\n" in text


def stacked() -> CellProfile:
    """The instructions of ``AFTER``, by what led to them."""
    stacks = (
        ("callbench", 6000),
        ("callbench;read_tsc", 1501),
        ("callbench;read_tsc;get_kprobe", 8500),
        ("callbench;read_tsc;get_kprobe;kprobe_func [lab_kprobe]", 500),
    )
    return CellProfile.model_validate({**AFTER.model_dump(), "stacks": stacks})


def test_stacks_have_all_instructions() -> None:
    with pytest.raises(ValidationError, match="the stacks and the symbols have different sums"):
        CellProfile.model_validate({**AFTER.model_dump(), "stacks": (("callbench", 6000),)})


def test_folded_stacks_are_lines_for_other_programs() -> None:
    lines = folded_text(stacked()).splitlines()
    assert lines[2] == "callbench;read_tsc;get_kprobe 8500"
    assert sum(int(line.rpartition(" ")[2]) for line in lines) == AFTER.executed
    with pytest.raises(UsageError, match="has no stacks"):
        folded_text(AFTER)


def test_a_flame_graph_has_a_box_for_each_call_as_wide_as_what_it_executes() -> None:
    picture = ElementTree.fromstring(flame_graph(stacked()))
    boxes = {}
    for group in picture.iter("{http://www.w3.org/2000/svg}g"):
        title, rectangle = group[0].text or "", group[1]
        boxes[title.partition(":")[0]] = (title, float(rectangle.get("width", "0")), float(rectangle.get("y", "0")))
    assert boxes["callbench"][0] == "callbench: 33.002 instructions per call, 12 in its own code"
    assert boxes["callbench"][1] == 1200
    assert boxes["get_kprobe"][1] == pytest.approx(1200 * 9000 / 16501, abs=0.01)
    heights = [boxes[name][2] for name in ("callbench", "read_tsc", "get_kprobe", "kprobe_func [lab_kprobe]")]
    assert heights == sorted(heights, reverse=True)


def test_a_name_from_a_guest_is_no_markup() -> None:
    stacks = (("<script>&", AFTER.executed),)
    text = flame_graph(CellProfile.model_validate({**AFTER.model_dump(), "stacks": stacks}))
    assert "<script>" not in text
    assert ElementTree.fromstring(text) is not None
