# SPDX-License-Identifier: GPL-2.0-only
"""Are the bytes of a marker counted in the right path, and is what is no such object refused?"""

from __future__ import annotations

import subprocess
from pathlib import Path
from tempfile import NamedTemporaryFile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.benchmarks.markers.code_size import (
    PROBE,
    ObjectFile,
    listing_lines,
    marker_sizes,
    paths,
    read_object,
    size_lines,
)
from orchestrator.errors import ConfigError, EvidenceError

SOURCE = Path(__file__).with_name("codesize") / "marked.S"


def assembled(folder: Path, width: int, source: Path = SOURCE) -> Path:
    target = folder / f"object{width}.o"
    subprocess.run(["gcc", f"-m{width}", "-c", "-o", str(target), str(source)], check=True, timeout=600)
    return target


@pytest.fixture(scope="module", params=[32, 64])
def marked(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ObjectFile:
    return read_object(assembled(tmp_path_factory.mktemp("objects"), request.param))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return assembled(tmp_path_factory.mktemp("whole"), 32).read_bytes()


def test_each_path_has_its_bytes(marked: ObjectFile) -> None:
    sizes = marker_sizes(marked)
    assert (sizes["optimized"].likely, sizes["optimized"].unlikely) == (6, 16)
    # The jump into another section is a long one; what is there counts whole.
    assert (sizes["generic"].likely, sizes["generic"].unlikely) == (15, 7)


def test_each_flavour_has_the_data_that_its_pointers_lead_to(marked: ObjectFile) -> None:
    sizes = marker_sizes(marked)
    pointer = 4 if marked.arch == "i386" else 8
    assert {flavour: dict(size.sections) for flavour, size in sizes.items()} == {
        "optimized": {"__markers": 2 * pointer, "__marker_data": 3 * pointer + 4},
        "generic": {"__markers": 4 * pointer, "__marker_data": 3 * pointer + 2},
    }
    assert {flavour: (size.flag, size.data) for flavour, size in sizes.items()} == {
        "optimized": (0, 0),
        "generic": (1, 4),
    }
    assert {(size.name, size.format) for size in sizes.values()} == {(len("subsys_mark1") + 1, len("%d %p") + 1)}


def test_a_frame_of_the_function_is_none_of_the_marker(tmp_path: Path) -> None:
    source = tmp_path / "frame.S"
    framed = SOURCE.read_text().replace("function my_open_unmarked\n", "function my_open_unmarked\n\tnop\n\tnop\n")
    source.write_text(framed)
    sizes = marker_sizes(read_object(assembled(tmp_path, 32, source)))
    assert (sizes["optimized"].likely, sizes["generic"].likely) == (6, 15)


def test_the_listing_is_annotated(marked: ObjectFile) -> None:
    sizes = marker_sizes(marked)
    optimized, generic = ("\n".join(sizes[flavour].listing) for flavour in ("optimized", "generic"))
    assert "b0 00                            movb $0, %al <-- immediate value" in optimized
    assert "<-- load of the flag" in generic
    assert "<probe>" in optimized
    assert "cc cc" not in optimized
    marks = [line.split("  ")[-1].lstrip()[:1] == "|" or " | " in line for line in sizes["optimized"].listing]
    assert marks == [False] * 5 + [True] * 5
    assert len(paths(marked, PROBE).listing) == 1


def test_the_table_names_its_compiler_whichever_it_is(marked: ObjectFile) -> None:
    text = "\n".join(str(line) for line in [*size_lines(marked, "a-kernel"), *listing_lines(marked)])
    assert f"{marked.arch}, kernel a-kernel, unknown compiler" in text
    rows = {
        line.split("  ")[0]: line.split()[-4:]
        for line in text.splitlines()
        if line.startswith((".text", "__", ".data", ".rodata, format"))
    }
    assert rows[".text, likely path"] == ["6", "6", "15", "11"]
    pointer = 4 if marked.arch == "i386" else 8
    assert rows["__markers"] == [str(2 * pointer), "8", str(4 * pointer), "8"]
    assert rows[".data"] == ["0", "0", "4", "1"]
    assert rows[".rodata, format"] == ["6", "-", "6", "-"]
    assert text.count("<-- immediate value") == 1


def test_a_way_without_end_is_noticed(marked: ObjectFile) -> None:
    with pytest.raises(EvidenceError, match="the path through endless reaches no return"):
        paths(marked, "endless")
    with pytest.raises(EvidenceError, match="the object has no function nothing"):
        paths(marked, "nothing")


@pytest.mark.parametrize(
    ("there", "instead", "refusal"),
    [
        ("__markers", "__other", "the object does not list where the marker marker1 is"),
        ('"subsys_mark1"', '"other"', "the object has no marker subsys_mark1"),
        (".byte 0xb0, 0\t", "nop\t", "the likely path of my_open_optimized has no marker"),
    ],
)
def test_an_object_without_markers_is_refused(tmp_path: Path, there: str, instead: str, refusal: str) -> None:
    source = tmp_path / "plain.S"
    source.write_text(SOURCE.read_text().replace(there, instead))
    with pytest.raises(EvidenceError, match=refusal):
        marker_sizes(read_object(assembled(tmp_path, 64, source)))


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text" * 100, Path("/bin/true").read_bytes()])
def test_other_files_than_objects_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.ko").write_bytes(content)
    with pytest.raises(ConfigError, match="is no"):
        read_object(tmp_path / "x.ko")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_object(tmp_path / "none.ko")


@given(place=st.integers(0, 4000), value=st.integers(0, 255))
def test_a_damaged_object_is_read_or_refused(whole: bytes, place: int, value: int) -> None:
    damaged = bytearray(whole)
    damaged[place % len(damaged)] = value
    with NamedTemporaryFile(suffix=".o") as file:
        file.write(damaged)
        file.flush()
        try:
            marker_sizes(read_object(Path(file.name)))
        except (ConfigError, EvidenceError):
            return
