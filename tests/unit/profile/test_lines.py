# SPDX-License-Identifier: GPL-2.0-only
"""Is each instruction counted for its source line, inlined or not, and does a line stay itself when it moves?"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterable
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from profiled_cells import list5
from tiny_modules import tiny_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.debug_info import NoDebugInfoError
from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.module_code import module_code
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.files import sha256_of
from orchestrator.process import Finished
from orchestrator.profile.counted.generated_code import GENERATED
from orchestrator.profile.lines import dwarf_lines as subject
from orchestrator.profile.lines import stored_sources as of_runs
from orchestrator.profile.lines.by_line import FunctionLine, Sources, annotated_lines, by_line, same_lines, with_lines
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.generated_lines import CodeLines
from orchestrator.profile.lines.line_coverage import coverage
from orchestrator.profile.lines.line_source import Frame, source_text
from orchestrator.profile.lines.stored_sources import stored_sources
from orchestrator.profile.printed.lcov import lcov_text
from orchestrator.profile.stored.cell_profile import CellProfile, CodeLine, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_difference import ProfileDifference, difference
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile

SOURCE = """\
extern volatile int total;
static inline __attribute__((always_inline)) void add(int count)
{
\ttotal += count;
}
void outer(int count)
{
\tadd(count);
\tif (count > 5)
\t\ttotal = 1;
}
__attribute__((section(".init.text"))) void first(void)
{
\ttotal = 2;
}
"""
CALLS = 10


def compiled(folder: Path, *flags: str, source: str = SOURCE) -> SourceLines:
    folder.mkdir(exist_ok=True)
    (folder / "x.c").write_text(source)
    command = ["gcc", "-O2", "-fcf-protection=none", "-ffreestanding", *flags, "-c", "x.c", "-o", "x.ko"]
    subprocess.run(command, cwd=folder, check=True)
    return SourceLines(folder / "x.ko", module_code(folder / "x.ko"), [folder])


@pytest.fixture(scope="module", params=["-m64", "-m32"])
def source_lines(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SourceLines:
    return compiled(tmp_path_factory.mktemp("lines"), "-g", request.param)


def executed(of: SourceLines, *names: str, times: int = CALLS) -> CellProfile:
    """A profile of so many executions of each instruction of these functions, and of a program."""
    symbols = [
        SymbolProfile(name="program", place="user", address=0, instructions=(InstructionCount(64, "90", 7 * CALLS),))
    ]
    for name in names:
        start = of.code.address(name)
        assert start is not None
        part = range(start, of.code.following(start) or start)
        places = sorted([*of.lines_of(part), part.stop])
        instructions = [
            InstructionCount(at - start, of.code.read(at, end - at).hex(), times) for at, end in pairwise(places)
        ]
        symbols.append(
            SymbolProfile(name=name, place="module", module="x", address=0, instructions=tuple(instructions))
        )
    return CellProfile(cell="m/k/p", arch="i386", calls=CALLS, has_details=False, symbols=tuple(symbols))


def line_number(text: str) -> int:
    return SOURCE.splitlines().index(text) + 1


def test_inlined_frames_and_sections(source_lines: SourceLines) -> None:
    starts = {name: source_lines.code.function(name) or 0 for name in ("outer", "first")}
    lines = source_lines.lines_of(range(starts["outer"], (source_lines.code.following(starts["outer"]) or 0)))
    inlined = [frames for frames in lines.values() if len(frames) == 2]
    assert [(one.function, one.line) for one in inlined[0]] == [
        ("add", line_number("\ttotal += count;")),
        ("outer", line_number("\tadd(count);")),
    ]
    # Both sections begin at 0 in the file.
    assert {frames[-1].function for frames in source_lines.frames(starts.values()).values()} == {"outer", "first"}


def test_the_sum_over_lines_is_that_over_symbols(source_lines: SourceLines) -> None:
    profile = executed(source_lines, "outer", "first")
    lines = by_line(profile, {"x": source_lines})
    lined = with_lines(profile, lines)
    assert lined.executed == profile.executed
    titles = {symbol.name for symbol in lined.symbols}
    assert f"x.c:{line_number(chr(9) + 'total += count;')} add in outer [x]" in titles
    assert f"x.c:{line_number(chr(9) + 'total = 2;')} first [x]" in titles
    assert "(no line) program" in titles
    (without,) = (one for one in lined.symbols if one.name == "(no line) program")
    assert without.place == "user"
    with pytest.raises(EvidenceError, match="lines of cell m/k/p have"):
        with_lines(profile, dict(list(lines.items())[1:]))


def test_the_source_beside_its_counts(source_lines: SourceLines) -> None:
    profile = executed(source_lines, "outer")
    text = annotated_lines([(profile, by_line(profile, {"x": source_lines}))], "outer")
    assert "add in outer [x], x.c" in text
    assert any(line.split()[1:] == ["4", "total", "+=", "count;"] for line in text.splitlines())
    with pytest.raises(UsageError, match="do not execute 'inner'"):
        annotated_lines([(profile, by_line(profile, {"x": source_lines}))], "inner")


def test_lines_that_were_not_executed_are_in_the_tracefile(source_lines: SourceLines) -> None:
    profile = executed(source_lines, "outer")
    skipped = line_number("\t\ttotal = 1;")
    outer = profile.symbols[-1]
    start = source_lines.code.function("outer") or 0
    kept = [
        one
        for one in outer.instructions
        if all(frame.line != skipped for frame in source_lines.frames([start + one.offset])[start + one.offset])
    ]
    changed = outer.model_copy(update={"instructions": tuple(kept)})
    lines = coverage(profile.model_copy(update={"symbols": (changed,)}), {"x": source_lines})
    ((file, counts),) = lines.items()
    assert Path(file).name == "x.c"
    assert counts[skipped] == 0
    assert counts[line_number("\tadd(count);")] == CALLS
    text = lcov_text(lines)
    assert f"DA:{skipped},0\n" in text
    assert text.startswith(f"TN:\nSF:{file}\n")


@pytest.mark.parametrize(
    ("flags", "source", "expected"),
    [
        ((), SOURCE, "the debug information cannot be read"),
        (("-g",), SOURCE.replace("total += count", "total ^= count * 77; total -= 3"), "another build's code"),
        (("-g",), SOURCE.replace("outer", "inner"), "another build's code than the measured one: it has no outer"),
    ],
)
def test_a_file_of_something_else(
    source_lines: SourceLines, tmp_path: Path, flags: Iterable[str], source: str, expected: str
) -> None:
    profile = executed(source_lines, "outer")
    other = compiled(tmp_path / "other", *flags, "-m64" if source_lines.code.word == 8 else "-m32", source=source)
    with pytest.raises(NoDebugInfoError, match=expected) as raised:
        by_line(profile, {"x": other})
    assert str(raised.value).splitlines()[0].startswith(str(tmp_path))


@pytest.mark.parametrize("name", ["mine", "../../mine", "mine\nyours", ""])
@pytest.mark.parametrize("key", ["0" * 24, "..", "a", f"{'1' * 24}-2"])
def test_the_module_of_a_run_from_elsewhere_is_not_compiled(
    context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, key: str
) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    kernel.image.write_bytes(b"the image")
    monkeypatch.setattr(of_runs, "ready_kernel", lambda *_: kernel)
    folder = tmp_path / "run" / "modules" / kernel.spec.name / f"mine-{key[:8]}"
    folder.mkdir(parents=True)
    (folder / "Kbuild").write_text("$(shell touch touched)\nobj-m := mine.o\n")
    (cell,) = list5(tmp_path / "run")
    boot = {
        "name": "boot1/guest1",
        "kernel": {"name": kernel.spec.name, "image_sha256": sha256_of(kernel.image)},
        "modules": {cell.id: {"name": name, "key": key, "file_sha256": "0" * 64}},
        "cells": [cell.id],
    }
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({"boots": [boot]}))
    with pytest.raises(NoDebugInfoError, match="is not in the cache any more"):
        stored_sources(context, tmp_path / "run", cell, lambda: kernel.spec)
    boot["kernel"] = {"name": kernel.spec.name, "image_sha256": "0" * 64}
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({"boots": [boot]}))
    with pytest.raises(NoDebugInfoError, match="is another build's than that of the run"):
        stored_sources(context, tmp_path / "run", cell, lambda: kernel.spec)
    (tmp_path / "run" / "provenance.json").unlink()
    with pytest.raises(NoDebugInfoError, match="does not record what cell"):
        stored_sources(context, tmp_path / "run", cell, lambda: kernel.spec)


@pytest.fixture
def context(tmp_path: Path) -> BuildContext:
    return BuildContext(Cache(tmp_path / "cache"), offline=True)


def lines_of(texts: Iterable[str], first: int) -> dict[FunctionLine, list[InstructionCount]]:
    """A function whose lines from ``first`` on have these texts, each executed as often as it is long."""
    return {
        FunctionLine("x.c", first + at, "f", "f", "/x.c", text): [InstructionCount(at, "90", len(text))]
        for at, text in enumerate(texts)
    }


def compared(
    before: dict[FunctionLine, list[InstructionCount]], after: dict[FunctionLine, list[InstructionCount]]
) -> ProfileDifference:
    def profile(lines: dict[FunctionLine, list[InstructionCount]]) -> CellProfile:
        own = tuple(one for instructions in lines.values() for one in instructions)
        symbol = SymbolProfile(name="f", place="kernel", address=0, instructions=own)
        return CellProfile(cell="m/k/p", arch="i386", calls=1, has_details=False, symbols=(symbol,))

    first = with_lines(profile(before), before, same_lines(before, after))
    return difference(first, with_lines(profile(after), after))


TEXTS = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=12)


@given(TEXTS, st.integers(0, 50))
def test_a_line_that_only_moved_is_equal(texts: list[str], moved: int) -> None:
    assert compared(lines_of(texts, 10), lines_of(texts, 10 + moved)).symbols == []


@given(TEXTS, TEXTS)
def test_lines_that_changed_add_up(texts: list[str], others: list[str]) -> None:
    difference = compared(lines_of(texts, 10), lines_of(others, 12))
    change = sum(map(len, others)) - sum(map(len, texts))
    assert sum(symbol.change for symbol in difference.symbols) == change


def test_the_line_that_was_changed_is_named() -> None:
    difference = compared(lines_of(["int i;", "add(1);", "end"], 10), lines_of(["int i;", "add(1000);", "end"], 20))
    assert [(symbol.title, symbol.change) for symbol in difference.symbols] == [("x.c:21 f", Fraction(3))]


def test_another_line_of_the_same_number_is_not_the_same() -> None:
    difference = compared(lines_of(["gone;", "stays"], 10), lines_of(["stays", "is new", "twice"], 10))
    assert {symbol.title for symbol in difference.symbols} == {"before: x.c:10 f", "x.c:11 f", "x.c:12 f"}


def test_without_the_source_the_distance_from_the_first_line_counts() -> None:
    before = {FunctionLine("x.c", at, "f", "f"): [InstructionCount(at, "90", at)] for at in (10, 12, 17)}
    after = {FunctionLine("x.c", at + 100, "f", "f"): [InstructionCount(at, "90", at)] for at in (10, 12, 18)}
    assert {one.title for one in compared(before, after).symbols} == {"x.c:17 f", "x.c:118 f"}


ANSWERS = st.one_of(
    st.text(),
    st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.lists(inner, max_size=4)).map(json.dumps),
)


def is_sound(answer: str) -> bool:
    """Whether it has the frames of two addresses."""
    try:
        both = json.loads(answer)
        return len(both) == 2 and all(
            isinstance(function, str) and isinstance(file, str) and 0 <= line < 1 << 31
            for frames in both
            for function, file, line in frames
        )
    except (ValueError, TypeError):
        return False


FRAMES = st.lists(st.tuples(st.text(), st.text(), st.integers()), max_size=3)
ANSWERS = ANSWERS | st.lists(FRAMES, min_size=1, max_size=3).map(json.dumps)


@given(ANSWERS, st.sampled_from([0, 0, 0, 1, -11]))
def test_a_reader_that_says_anything(answer: str, status: int) -> None:
    class Fixed(SourceLines):
        def __init__(self) -> None:
            self.file, self._known, self._roots = Path("x.ko"), {}, []
            self.code = CODE

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subject, "run", lambda argv, **_: Finished(tuple(argv), status, answer, ""))
        raises = pytest.raises(NoDebugInfoError, match="the debug information cannot be read")
        with raises if status or not is_sound(answer) else contextlib.nullcontext():
            frames_by_address = Fixed().frames([1, 2])
            assert all(
                isinstance(frame, Frame) and frame.line > 0 for frames in frames_by_address.values() for frame in frames
            )


CODE = KernelCode([], b"", 8, [], {}, is_module=True)


BPF = """\
static __noinline void add(void)
{
\ttotal += 1;
}
int f(void)
{
\tif (total)
\t\tadd();
\telse
\t\ttotal = 9;
\treturn 0;
}
"""


def bpf_lines(file: str) -> list[CodeLine]:
    """The lines of add() at 100 to 110, and of f() at 200 to 240; at 212 the compiler names none."""
    numbers = {100: 1, 104: 3, 110: None, 200: 5, 208: 7, 212: 0, 216: 8, 224: 10, 232: 11, 240: None}
    texts = ["", *(text.strip() for text in BPF.splitlines())]
    return [CodeLine(at) if n is None else CodeLine(at, n, file, texts[n]) for at, n in numbers.items()]


def bpf_profile(file: str) -> CellProfile:
    """Three calls of f(), which call add(), of a trampoline, and of a function of f()'s name that has no lines."""

    def symbol(name: str, *addresses: int) -> SymbolProfile:
        instructions = tuple(InstructionCount(at, "90", 3) for at in addresses)
        return SymbolProfile(name=name, place="generated", address=0, instructions=instructions)

    symbols = (
        symbol("BPF program f", 50, 200, 204, 208, 212, 216, 220, 232, 236, 240),
        symbol("BPF trampoline", 150, 151, 300),
        symbol("BPF program add", 100, 103, 104),
    )
    lines = tuple(bpf_lines(file))
    return CellProfile(cell="m/k/p", arch="x86_64", calls=3, has_details=False, symbols=symbols, code_lines=lines)


def test_the_lines_of_bpf_programs(tmp_path: Path) -> None:
    file = tmp_path / "x.bpf.c"
    file.write_text(BPF)
    profile = bpf_profile(str(file))
    sources: Sources = {GENERATED: CodeLines(profile)}
    counts = by_line(profile, sources)
    assert {line.title: sum(one.executed for one in own) for line, own in counts.items()} == {
        "(no line) BPF program f": 9,
        "x.bpf.c:5 BPF program f": 6,
        "x.bpf.c:7 BPF program f": 3,
        "x.bpf.c:8 BPF program f": 6,
        "x.bpf.c:11 BPF program f": 6,
        "(no line) BPF trampoline": 9,
        "x.bpf.c:1 BPF program add": 6,
        "x.bpf.c:3 BPF program add": 3,
    }
    assert with_lines(profile, counts).executed == profile.executed
    text = annotated_lines([(profile, counts)], "BPF program f")
    assert "       2      8  \t\tadd();" in text
    assert "             10  \t\ttotal = 9;" in text
    assert {line.title for line in by_line(profile, {})} == {
        f"(no line) {name}" for name in ("BPF program f", "BPF program add", "BPF trampoline")
    }

    assert coverage(profile, sources) == {str(file): {1: 3, 3: 3, 5: 3, 7: 3, 8: 3, 10: 0, 11: 3}}


def test_the_source_of_bpf_programs_is_the_measured_one(tmp_path: Path) -> None:
    """A file that was changed since is not printed: the run's copy is, or what the type information has."""
    file, kept = tmp_path / "own" / "x.bpf.c", tmp_path / "sources" / "x.bpf.c-01234567"
    file.parent.mkdir()
    kept.mkdir(parents=True)
    file.write_text(f"// one more line\n{BPF}")
    profile = bpf_profile(str(file))

    def shown() -> tuple[str, list[str]]:
        sources: Sources = {GENERATED: CodeLines(profile, [kept])}
        text = annotated_lines([(profile, by_line(profile, sources))], "BPF program f")
        return text, list(coverage(profile, sources))

    text, files = shown()
    assert "       2      8  add();" in text
    assert "one more line" not in text
    assert "if (total)" in text
    assert files == ["x.bpf.c"]
    (kept / "x.bpf.c").write_text(BPF)
    source_text.cache_clear()
    text, files = shown()
    assert "       2      8  \t\tadd();" in text
    assert "f, x.bpf.c\n" in text
    assert files == [str(kept / "x.bpf.c")]


@pytest.mark.parametrize("file", ["/etc/passwd", "../../etc/passwd", "/etc/../etc/passwd", "passwd"])
def test_lines_from_elsewhere_name_no_file_to_print(file: str) -> None:
    lines = (CodeLine(200, 1, file), CodeLine(240))
    profile = bpf_profile(file).model_copy(update={"code_lines": lines})
    text = annotated_lines([(profile, by_line(profile, {GENERATED: CodeLines(profile)}))], "BPF program f")
    assert "root" not in text


def test_the_bpf_lines_of_a_run(context: BuildContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    kernel.image.write_bytes(b"the image")
    monkeypatch.setattr(of_runs, "ready_kernel", lambda *_: kernel)
    kept = tmp_path / "run" / "sources" / f"x.bpf.c-{'0' * 8}"
    kept.mkdir(parents=True)
    (cell,) = list5(tmp_path / "run")
    (kept / "x.bpf.c").write_text(BPF)
    boot = {
        "name": "boot1/guest1",
        "kernel": {"name": kernel.spec.name, "image_sha256": sha256_of(kernel.image)},
        "inputs": {cell.id: {"probe": {"name": "x.bpf.c", "key": "0" * 24}, "image": {"name": "x", "key": "*"}}},
        "cells": [cell.id],
    }
    (tmp_path / "run" / "provenance.json").write_text(json.dumps({"boots": [boot]}))
    profile = bpf_profile("/gone/x.bpf.c").model_copy(update={"cell": cell.id})
    sha = write_profile(profile, tmp_path / "run" / FOLDER / file_name(cell.id))
    assert cell.profile is not None
    cell = cell.model_copy(update={"profile": cell.profile.model_copy(update={"sha256": sha})})
    # The kernel has no debug information here.
    sources = stored_sources(context, tmp_path / "run", cell, lambda: kernel.spec)
    assert list(sources) == [GENERATED]
    assert {line.path for line in by_line(profile, sources)} == {"", str(kept / "x.bpf.c")}
    monkeypatch.setattr(of_runs, "kernel_debug_info", lambda *_: pytest.fail("no kernel's lines were asked for"))
    sources = stored_sources(context, tmp_path / "run", cell, lambda: kernel.spec, "BPF program f")
    assert list(sources) == [GENERATED]
