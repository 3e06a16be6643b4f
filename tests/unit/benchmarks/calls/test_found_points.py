# SPDX-License-Identifier: GPL-2.0-only
"""Which points has a table that probes what its calls execute, and why did calls never come to another one?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from built_code import build_tree
from loaded_tables import as_kind, calls_experiment, only_table
from pydantic import ValidationError
from record_builders import cell, failed, run

from orchestrator.artifacts.kernel_code import KernelCode, code_of_tree
from orchestrator.artifacts.machine_code import direct_calls
from orchestrator.benchmarks.calls import executed as executed_module
from orchestrator.benchmarks.calls.call_cells import CallCell, call_cells
from orchestrator.benchmarks.calls.calls_table import CallsTable, FoundPoint
from orchestrator.benchmarks.calls.cell_work import GuestCache
from orchestrator.benchmarks.calls.executed import Executed, ExecutedFunction, executed_by
from orchestrator.benchmarks.calls.found_points import MOST_POINTS, found_points, instruction_points
from orchestrator.benchmarks.calls.never_hit import explained
from orchestrator.benchmarks.calls.report import REPORT
from orchestrator.catalog.cpus import cpus
from orchestrator.catalog.kernels import kernel as kernel_spec
from orchestrator.errors import NotEntered
from orchestrator.experiment.experiment import Experiment
from orchestrator.experiment.plan import plan
from orchestrator.experiment.problems import problems_of
from orchestrator.probes.placement import POSSIBLE, TECHNIQUES, FunctionPlaces, ProbePlace, RefusedPlaces, impossible
from orchestrator.probes.point import Point
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.run.benchmark_kind import BootArtifacts

PLACE = ("pentium4", "debian-686")
NOINSTR = "it is noinstr: no trap may happen there"


def function(
    name: str, address: int = 0, entered: int = 10, refusal: str | None = None, *offsets: int
) -> ExecutedFunction:
    return ExecutedFunction(
        name=name,
        address=address,
        entered=entered,
        instructions=100,
        counts=dict.fromkeys(offsets, entered),
        refusal=refusal,
    )


def executed(*functions: ExecutedFunction) -> Executed:
    return Executed(calls=10, functions=functions)


def a_point(name: str, hits: int, refusal: str | None = None) -> FoundPoint:
    return FoundPoint(Point(name, found_by="executed"), hits, refusal)


def found(*points: FoundPoint) -> Experiment:
    """An experiment of the quickstart's kind whose points were found."""
    experiment = calls_experiment(points="executed", probes=["none", "kprobe", "djprobe"])
    (named,) = experiment.tables
    table = as_kind(named.table, CallsTable).with_found({PLACE: points})
    return Experiment(experiment.heading, [type(named)(named.name, named.kind, table)])


def test_a_point_for_each_function_and_how_often_a_call_enters_it() -> None:
    points = found_points(executed(function("entry", refusal=NOINSTR), function("copy", entered=20), function("tail")))
    assert list(points) == [a_point("entry", 1, NOINSTR), a_point("copy", 2), a_point("tail", 1)]


def test_functions_beyond_the_bound_say_that_they_were_left_out() -> None:
    names = [f"f{number}" for number in range(MOST_POINTS + 2)]
    points = list(found_points(executed(*map(function, names))))
    assert [str(point.point) for point in points] == names
    assert [point.refusal is None for point in points] == [True] * MOST_POINTS + [False] * 2
    assert points[-1].refusal == f"left out: {MOST_POINTS} functions with more instructions are probed"


def place(offset: int, code: str = "90", *, refused: str | None = None) -> ProbePlace:
    verdict = POSSIBLE if refused is None else impossible(refused)
    return ProbePlace(
        offset=offset,
        code=bytes.fromhex(code),
        is_repeated=code == "f3a4",
        is_entry=offset == 0,
        verdicts=dict.fromkeys(TECHNIQUES, verdict),
    )


READ = FunctionPlaces("read", 0x100, 0x110, [place(0), place(1), place(2, "f3a4"), place(4), place(5)])


def test_a_point_for_each_instruction_and_how_often_a_call_executes_it() -> None:
    counts = {0: 10, 1: 20, 2: 160, 4: 15}
    function = ExecutedFunction(name="read", address=0x100, entered=10, instructions=1, counts=counts, refusal=None)
    points = list(instruction_points("read+*", READ, executed(function)))
    assert [(str(point.point), point.hits) for point in points if point.refusal is None] == [
        ("read+0x0", 1),
        ("read+0x1", 2),
    ]
    refusals = [point.refusal or "" for point in points[2:]]
    assert [word in one for word, one in zip(("repeats", "not equally", "do not execute"), refusals, strict=True)] == [
        True
    ] * 3
    # Of a function that no call enters nothing is probed.
    assert {point.refusal for point in instruction_points("read+*", READ, executed())} == {
        "these calls do not execute it"
    }
    # Before anything was counted all is possible.
    assert {(point.hits, point.refusal) for point in instruction_points("read+*", READ, None)} == {(None, None)}


def each_instruction(*points: FoundPoint) -> CallsTable:
    """A table with read+* among its points, found on the quickstart's kernel and machine."""
    experiment = calls_experiment(points=["read+*"], probes=["none", "kprobe", "djprobe"])
    return only_table(experiment, CallsTable).with_found({PLACE: points})


def test_an_instruction_that_a_kind_cannot_have_is_unsupported_for_that_kind_alone() -> None:
    where = replace(
        place(1), verdicts={**dict.fromkeys(TECHNIQUES, POSSIBLE), "djprobe": impossible("not at the entry")}
    )
    table = each_instruction(FoundPoint(Point("read", 1, found_by="read+*"), 3, place=where))
    cells: list[CallCell] = list(call_cells(None, table))
    assert [(one.probe, str(one.point), one.task.hits, one.task.refusal) for one in cells] == [
        ("none", "read+0x1", 3, None),
        ("kprobe", "read+0x1", 3, None),
        ("djprobe", "read+0x1", 3, "not at the entry"),
    ]
    assert {one.parameters["points"] for one in cells} == {"read+*"}
    assert table.unknown == "points: read+*: which probes an instruction accepts shows only when it is tried"


def test_points_not_counted_yet_are_said() -> None:
    said = "points: read+*: a guest has to count first how often a call executes each instruction"
    assert each_instruction().unknown == said
    assert each_instruction(FoundPoint(Point("read", 1, found_by="read+*"), place=place(1))).unknown == said


def test_each_instruction_is_for_the_exact_clock() -> None:
    with pytest.raises(ValidationError) as raised:
        calls_experiment(points=["read+*"], clock="wall", benchmark={"name": "gtodbench", "repeats": 12, "hits": 2})
    problems = {problem.path: problem.sentence for problem in problems_of(raised.value, lambda path: "")}
    assert "found read+*; clock 'wall' counts no instructions" in problems["points",]
    assert problems["benchmark", "hits"].startswith("points: read+* finds out how often")


def test_an_instruction_is_not_named_twice() -> None:
    with pytest.raises(ValidationError) as raised:
        calls_experiment(points=["read+0x1", "other+0x1", "read+*"])
    problems = {problem.path: problem.sentence for problem in problems_of(raised.value, lambda path: "")}
    assert problems == {("points", 0): "found 'read+0x1'; read+* has it already"}


def test_functions_of_one_name_are_one_point() -> None:
    twice = "the kernel has 2 functions of this name"
    points = found_points(executed(function("show", 1, 10, twice), function("show", 2, 10, twice)))
    assert [str(point.point) for point in points] == ["show"]


def test_a_name_stands_for_the_function_that_can_be_probed() -> None:
    of_module = function("show", 1, 10, "its name stands for one of the kernel itself")
    points = found_points(executed(of_module, function("show", 2, 20)))
    assert list(points) == [a_point("show", 2)]


def test_a_module_s_function_is_no_point_where_the_kernel_has_one_of_its_name() -> None:
    """A point is looked for in the kernel first: the probe would be at a function that was not counted."""
    symbols = Symbols(
        b"c1000000 T _stext\nc1000010 t show\nd0846000 t show\t[mine]\nd0846010 t own\t[mine]\n", frozenset({"mine"})
    )
    code = (InstructionCount(0, "90", 10),)
    functions = [
        SymbolProfile(name="show", place="module", module="mine", address=0, instructions=code),
        SymbolProfile(name="own", place="module", module="mine", address=0x10, instructions=code),
        SymbolProfile(name="own", place="module", module="other", address=0x10, instructions=code),
        SymbolProfile(name="show", place="kernel", address=0xC1000010, instructions=code),
    ]
    profile = CellProfile(cell="executed", arch="i386", calls=10, has_details=False, symbols=tuple(functions))
    executed_functions = executed_module._functions(profile, symbols, RefusedPlaces([]), {"mine"})
    assert [
        (executed_function.name, executed_function.module, executed_function.refusal)
        for executed_function in executed_functions
    ] == [
        ("show", "mine", "it is a function of module mine, and its name stands for one of the kernel itself"),
        ("own", "mine", None),
        ("own", "other", "it is a function of module other, which is not among the experiment's kernel_modules"),
        ("show", None, None),
    ]


def test_the_cells_of_found_points() -> None:
    cells: list[CallCell] = list(plan(found(a_point("entry", 1, NOINSTR), a_point("copy", 2))).cells)
    assert [(one.probe, str(one.point), one.task.refusal) for one in cells] == [
        ("kprobe", "entry", NOINSTR),
        ("djprobe", "entry", NOINSTR),
        ("none", "copy", None),
        ("kprobe", "copy", None),
        ("djprobe", "copy", None),
    ]
    # What cannot be probed is compared with nothing.
    assert [len(one.compared_with) for one in cells] == [0, 0, 0, 1, 1]
    assert {one.task.hits for one in cells if str(one.point) == "copy"} == {2}
    assert all(one.parameters["points"] == "executed" for one in cells)


def test_before_they_were_found_there_is_only_the_baseline() -> None:
    experiment = calls_experiment(points="executed", probes=["none", "kprobe"])
    assert [one.probe for one in plan(experiment).cells] == ["none"]
    assert only_table(experiment, CallsTable).unknown == "points: executed: a guest has to make the calls first"
    assert only_table(found(a_point("copy", 2)), CallsTable).unknown is None


def test_stored_experiment_says_executed_and_not_which() -> None:
    """A run is resumed with what is found again, the same to the instruction."""
    assert (
        found(a_point("copy", 2)).digest()
        == calls_experiment(points="executed", probes=["none", "kprobe", "djprobe"]).digest()
    )


@pytest.mark.parametrize(
    ("keys", "path", "sentence"),
    [
        ({"points": "executes"}, ("points",), "found 'executes'; expected a list of kernel functions, or executed"),
        ({"points": ["vfs_read", "a b"]}, ("points", 1), "found 'a b'; expected a kernel function"),
        ({"points": []}, ("points",), "found 0 entries"),
        ({"clock": "wall"}, ("points",), "found executed; clock 'wall' counts no instructions, so"),
        (
            {"benchmark": {"name": "gtodbench", "hits": 2}},
            ("benchmark", "hits"),
            "points: executed finds out how often",
        ),
        ({"reference": "djprobe-2005/list5"}, ("reference",), "nothing is published of points: executed"),
    ],
)
def test_what_does_not_go_together(keys: dict[str, object], path: tuple[str | int, ...], sentence: str) -> None:
    with pytest.raises(ValidationError) as raised:
        calls_experiment(**{"points": "executed", **keys})
    problems = {problem.path: problem.sentence for problem in problems_of(raised.value, lambda path: "")}
    assert problems[path].startswith(sentence), problems


def test_the_table_has_a_row_for_each_function() -> None:
    facts = {"points": "executed", "call": "gettimeofday", "calls": 5000}
    record = run(
        *(cell(probe, id=f"{probe}/copy", parameters={**facts, "at": "copy"}) for probe in ("none", "kprobe")),
        cell("none", id="none/tail", parameters={**facts, "at": "tail"}),
        failed("kprobe", "it may fault", id="kprobe/tail", status="unsupported", parameters={**facts, "at": "tail"}),
        failed("kprobe", NOINSTR, id="kprobe/entry", status="unsupported", parameters={**facts, "at": "entry"}),
    )
    assert len({REPORT.table_key(one) for one in record.cells}) == 1
    sheet = REPORT.sheet(list(REPORT.groups(record.cells)))
    assert [(row.label, list(row.cells)) for row in sheet.grid.blocks[0]] == [
        ("copy", ["1", "627"]),
        ("tail", ["-", "unsupported [1]"]),
    ]
    assert f"Not probed: entry: {NOINSTR}." in sheet.sentences
    assert [note.text for note in sheet.footnotes] == ["kprobes at tail unsupported: it may fault"]
    assert not REPORT.charts(list(REPORT.groups(record.cells)))


@pytest.mark.parametrize(("points", "heading"), [("executed", "entered by a call"), ("read+*", "executed by a call")])
def test_the_heading_says_what_a_call_does_at_a_point(points: str, heading: str) -> None:
    facts = {"points": points, "call": "read", "calls": 5000, "at": "read+0x1"}
    record = run(*(cell(probe, id=probe, parameters=facts) for probe in ("none", "kprobe")))
    assert REPORT.sheet(list(REPORT.groups(record.cells))).grid.headings[0] == heading


def test_a_table_of_functions_that_cannot_be_probed_prints() -> None:
    facts = {"points": "executed", "at": "entry"}
    record = run(failed("kprobe", NOINSTR, status="unsupported", parameters=facts))
    (block,) = REPORT.sheet(list(REPORT.groups(record.cells))).grid.blocks
    assert [row.label for row in block] == ["no function"]


@pytest.fixture(scope="module", params=[4, 8])
def code(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> KernelCode:
    """A kernel in which ``executed`` calls ``missed``, ``idle`` does so too, and nothing calls ``pointed``."""
    folder = tmp_path_factory.mktemp("kernel")
    source = folder / "kernel.c"
    source.write_text(
        '#define FUNCTION(name) __attribute__((noinline, used, section(".text." #name))) void name(void)\n'
        "volatile int value;\n"
        '__attribute__((section(".text.0"), used)) void _stext(void) {}\n'
        "FUNCTION(missed) { value = 1; }\n"
        "FUNCTION(pointed) { value = 2; }\n"
        "FUNCTION(rare) { value = 3; }\n"
        "FUNCTION(executed) { if (value) missed(); value = 4; }\n"
        "FUNCTION(idle) { missed(); rare(); value = 5; }\n"
        '__attribute__((section(".text.z"), used)) void _etext(void) {}\n'
    )
    tree = build_tree(folder, source, request.param, "-Wl,-e,executed", "-Wl,--sort-section=name")
    kernel_code = code_of_tree(tree)
    assert kernel_code is not None
    return kernel_code


def test_the_calls_of_a_function_in_the_code(code: KernelCode) -> None:
    symbols = Symbols.of_image(code)

    def callers(name: str) -> set[str]:
        found = [symbols.function_at(address) for address in direct_calls(code, symbols.address(name))]
        return {one[1] for one in found if one is not None}

    assert callers("missed") == {"executed", "idle"}
    assert callers("rare") == {"idle"}
    assert callers("pointed") == set()


@pytest.mark.parametrize(
    ("symbol", "lines"),
    [
        (
            "missed",
            [
                "these calls execute no instruction of missed",
                "executed calls it; the measured calls execute that, on another path",
                "where the compiler has inlined it, its instructions belong to the function around it",
            ],
        ),
        (
            "rare",
            [
                "these calls execute no instruction of rare",
                "idle calls it; the measured calls execute none of that",
                "where the compiler has inlined it, its instructions belong to the function around it",
            ],
        ),
        (
            "pointed",
            [
                "these calls execute no instruction of pointed",
                "nothing calls it directly: it is called through a pointer, or inlined wherever it is used",
                "where the compiler has inlined it, its instructions belong to the function around it",
            ],
        ),
    ],
)
def test_why_calls_never_came(code: KernelCode, symbol: str, lines: list[str]) -> None:
    symbols = Symbols.of_image(code)
    here = executed(function("executed", symbols.address("executed")))
    error = explained(NotEntered("1000 calls were made"), Point(symbol, 0), symbols, code, here)
    assert (error.what, list(error.detail)) == ("1000 calls were made", lines)
    assert error.hint == "these calls enter: executed"
    # Of a kernel whose code is not at hand, what the profile says.
    blind = explained(NotEntered("1000 calls were made"), Point(symbol, 0), symbols, None, here)
    assert list(blind.detail) == lines[:1]


def test_a_place_that_calls_pass_by(code: KernelCode) -> None:
    symbols = Symbols.of_image(code)
    here = executed(function("executed", symbols.address("executed"), 10, None, 0, 3, 9))
    error = explained(NotEntered("never"), Point("executed", 5), symbols, code, here)
    assert list(error.detail) == [
        "these calls execute 3 instructions of executed, at +0x0, +0x3, +0x9, but not the one at +0x5: they take "
        "another path through it"
    ]


def test_a_module_s_function_is_known_by_its_module(code: KernelCode) -> None:
    """Its address in a profile is not the one that it has in the guest."""
    loaded = b"d0846000 t other\t[mine]\nd0846050 t asked\t[mine]\n"
    symbols = Symbols(Symbols.of_image(code).listing + loaded, frozenset({"mine"}))
    ours = function("asked", 0x50, 10, None, 0, 3).model_copy(update={"module": "mine"})
    passed_by = explained(NotEntered("never"), Point("asked", 5), symbols, code, executed(ours))
    assert list(passed_by.detail) == [
        "these calls execute 2 instructions of asked, at +0x0, +0x3, but not the one at +0x5: they take another "
        "path through it"
    ]
    missed = explained(NotEntered("never"), Point("other", 0), symbols, code, executed(ours))
    assert list(missed.detail) == ["these calls execute no instruction of other"]
    # One of the kernel's own that begins at an address is none that begins so far behind a module's.
    assert executed(ours).at(0x50) is None


def test_functions_of_like_names_are_suggested_first(code: KernelCode) -> None:
    names = ["a_large_one", "get_missing", "entry_code", "missed_by"]
    here = executed(*(function(name, 1, 10, NOINSTR if name == "entry_code" else None) for name in names))
    symbols = Symbols.of_image(code)
    error = explained(NotEntered("never"), Point("missed", 0), symbols, code, here)
    assert error.hint == "these calls enter: missed_by, a_large_one, get_missing"


def test_what_calls_execute_is_found_out_once() -> None:
    known, here = GuestCache(), executed(function("executed"))
    cells: list[CallCell] = list(plan(found(a_point("copy", 2), a_point("tail", 1))).cells)
    asked: list[int] = []

    def find() -> Executed:
        asked.append(1)
        return here

    assert all(known.once("executed", one, find) is here for one in cells)
    assert len(asked) == 1


def test_what_calls_execute_is_kept_for_each_machine() -> None:
    asked: list[Mapping[str, object]] = []

    def nothing(kind: str, inputs: Mapping[str, object], label: str, build: object) -> None:
        asked.append(inputs)

    plain = cpus()["pentium4"]
    for name, cpu, memory, loaded in (
        ("lab-i386-up", plain, 256, ()),
        ("lab-i386-up+nopti", plain, 256, ()),
        ("lab-i386-up", plain, 512, ()),
        ("lab-i386-up", cpus()["athlon64"], 256, ()),
        ("lab-i386-up", plain.model_copy(update={"qemu": "qemu32"}), 256, ()),
        ("lab-i386-up", plain, 256, ("loop",)),
        ("lab-i386-up", plain, 256, ("fat", "vfat")),
        ("lab-i386-up", plain, 256, ("fat",)),
    ):
        machine = SimpleNamespace(
            cpu=cpu, memory_mib=memory, initramfs=Path("key/initramfs"), root=None, counter=None, data=()
        )
        named = SimpleNamespace(spec=kernel_spec(name), key="kernel")
        kernel, context, workload = (cast(Any, namespace) for namespace in (named, None, "calls"))
        artifacts = BootArtifacts(kernel, cast(Any, machine), {}, {name: Path(name) for name in loaded})
        assert executed_by(context, nothing, artifacts, workload, 1.0) is None
    assert all(one != other for one, other in combinations(asked, 2))
