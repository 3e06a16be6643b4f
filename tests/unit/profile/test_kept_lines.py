# SPDX-License-Identifier: GPL-2.0-only
"""Has a run of a user's kernel its source lines, with their texts, when the tree holds another kernel by now?"""

from __future__ import annotations

import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from profiled_cells import list5
from tiny_modules import tiny_kernel

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.module_code import module_code
from orchestrator.artifacts.ready_kernels import Kernel
from orchestrator.errors import LabError
from orchestrator.files import sha256_of
from orchestrator.profile.lines import kept_lines as subject
from orchestrator.profile.lines.by_line import annotated_lines, by_line, same_lines
from orchestrator.profile.lines.dwarf_lines import SourceLines
from orchestrator.profile.lines.kept_lines import KeptLines, keep_lines, kept_lines
from orchestrator.profile.lines.line_coverage import coverage
from orchestrator.profile.lines.line_source import source_text
from orchestrator.profile.stored.cell_profile import CellProfile, InstructionCount, SymbolProfile
from orchestrator.profile.stored.profile_files import FOLDER, file_name, write_profile
from orchestrator.results.contract import CellRecord

pytest.importorskip("drgn", reason="reads the lines")

SOURCE = """\
static volatile int total;
static inline void add(int count)
{
\ttotal += count;
}
void outer(int count)
{
\tadd(count);
}
"""
CHANGED = SOURCE.replace("\tadd(count);", "\tif (count > 5)\n\t\ttotal = 1;\n\tadd(count);")


@pytest.fixture(autouse=True)
def _no_text_of_before() -> Iterator[None]:
    source_text.cache_clear()
    yield
    source_text.cache_clear()


def built(tree: Path, source: str) -> SourceLines:
    """A tree's code: the compiler's names are relative to the folder that it is called in, as in a kernel's build."""
    (tree / "fs").mkdir(parents=True, exist_ok=True)
    (tree / "fs/open.c").write_text(source)
    mapped = f"-fdebug-prefix-map={tree}=."
    command = ["gcc", "-O2", "-g", mapped, "-fcf-protection=none", "-ffreestanding", "-c", "fs/open.c", "-o", "x.ko"]
    subprocess.run(command, cwd=tree, check=True)
    source_text.cache_clear()
    return SourceLines(tree / "x.ko", module_code(tree / "x.ko"), [tree], folders=[tree])


def profile_of(lines: SourceLines, cell: str) -> CellProfile:
    start = lines.code.function("outer") or 0
    part = range(start, lines.code.following(start) or start)
    places = sorted([*lines.lines_of(part), part.stop])
    counts = tuple(
        InstructionCount(at - start, lines.code.read(at, end - at).hex(), 10) for at, end in pairwise(places)
    )
    symbol = SymbolProfile(name="outer", place="kernel", address=start, instructions=counts)
    return CellProfile(cell=cell, arch="x86_64", calls=10, has_details=False, symbols=(symbol,))


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    plain = tiny_kernel(tmp_path / "kernel")
    plain.image.write_bytes(b"the image")
    return replace(plain, spec=plain.spec.model_copy(update={"tree": tmp_path / "linux"}))


def measured(run: Path, kernel: Kernel, lines: SourceLines, monkeypatch: pytest.MonkeyPatch) -> CellProfile:
    """A run with a profiled cell, in which the lines were kept."""
    (run / FOLDER).mkdir(parents=True)
    (cell,) = list5(run)
    profile = profile_of(lines, cell.id)
    sha = write_profile(profile, run / FOLDER / file_name(cell.id))
    assert cell.profile is not None
    record: CellRecord = cell.model_copy(update={"profile": cell.profile.model_copy(update={"sha256": sha})})
    monkeypatch.setattr(subject, "kernel_debug_info", lambda *_: lines.file)
    monkeypatch.setattr(SourceLines, "of_kernel", lambda *_: lines)
    monkeypatch.setattr(SourceLines, "start_of", lambda self, symbol: symbol.address)
    keep_lines(BuildContext(Cache(run / "cache")), run, kernel, [record])
    return profile


def found(run: Path, kernel: Kernel) -> KeptLines:
    kept = kept_lines(run, kernel.spec.name, sha256_of(kernel.image))
    assert kept is not None
    return kept


def test_the_text_of_relative_names_is_in_the_tree(tmp_path: Path) -> None:
    lines = built(tmp_path / "linux", SOURCE)
    (line,) = {line for line in by_line(profile_of(lines, "m/k/p"), {None: lines}) if line.function == "add"}
    assert (line.file, line.line, line.text) == ("fs/open.c", 4, "total += count;")
    assert line.path == f"{tmp_path}/linux/fs/open.c"


def test_a_run_keeps_its_lines_and_its_sources(tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = built(tmp_path / "linux", SOURCE)
    profile = measured(tmp_path / "run", kernel, lines, monkeypatch)
    then = by_line(profile, {None: lines})
    built(tmp_path / "linux", "int other;\n" * 20)
    kept = found(tmp_path / "run", kernel)
    now = by_line(profile, {None: kept})
    assert {line._replace(path=""): count for line, count in now.items()} == {
        line._replace(path=""): count for line, count in then.items()
    }
    assert "       3      4  \ttotal += count;" in annotated_lines([(profile, now)], "outer")
    ((file, counts),) = coverage(profile, {None: kept}).items()
    assert file == str(tmp_path / "run/lines" / kernel.spec.name / "sources/fs/open.c")
    assert counts[4] == 10
    assert kept_lines(tmp_path / "run", kernel.spec.name, "0" * 64) is None
    assert kept_lines(tmp_path / "run", "../run", "0" * 64) is None


def test_which_line_became_dearer_from_one_state_of_a_tree_to_another(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    sides = []
    for name, source in (("before", SOURCE), ("after", CHANGED)):
        profile = measured(tmp_path / name, kernel, built(tmp_path / "linux", source), monkeypatch)
        sides.append(by_line(profile, {None: found(tmp_path / name, kernel)}))
    same = same_lines(*sides)
    new = {line.text for line in sides[1]} - {line.text for line in same.values()}
    assert "if (count > 5)" in new
    assert "total += count;" not in new


@pytest.mark.parametrize("content", [b"", b"x", zlib.compress(b"{}"), zlib.compress(b"[1]")])
def test_damaged_lines_are_said(
    tmp_path: Path, kernel: Kernel, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    measured(tmp_path / "run", kernel, built(tmp_path / "linux", SOURCE), monkeypatch)
    (file,) = (tmp_path / "run/lines").rglob("*.z")
    whole = zlib.decompress(file.read_bytes())
    for damaged in (content, zlib.compress(whole.replace(b'"functions":[', b'"functions":[],"files":[]}'))):
        file.write_bytes(damaged)
        with pytest.raises(LabError, match="damaged, or written by another version"):
            found(tmp_path / "run", kernel)
    file.write_bytes(zlib.compress(whole.replace(b'"fs/open.c"', b"")))
    with pytest.raises(LabError, match="it names what it does not have"):
        found(tmp_path / "run", kernel)


def test_a_kernel_of_the_lab_s_has_its_lines_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    kernel.image.write_bytes(b"the image")
    measured(tmp_path / "run", kernel, built(tmp_path / "linux", SOURCE), monkeypatch)
    assert not (tmp_path / "run/lines").exists()
