# SPDX-License-Identifier: GPL-2.0-only
"""Is it said that a folder's build needs files outside of the folder, and is a build made again if one has changed?"""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.artifacts.outside_files import changed_outside, keep_outside, outside_hint, unlisted_hint
from orchestrator.artifacts.sources import read_sources

MISSING = "<build>/read.c:6:10: fatal error: {}: No such file or directory\n"


def put(file: Path, text: str = "") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module that needs another folder's header and symbols, beside one that it does not need."""
    for name in ("core", "other"):
        put(tmp_path / f"stack/{name}/Kbuild", f"obj-m := {name}.o\n")
    put(tmp_path / "stack/core-counter.h")
    put(tmp_path / "stack/include/own.h")
    makefile = "obj-m := read-user.o\nccflags-y += -I$(src)/../include\n"
    put(tmp_path / "stack/user/Kbuild", f"{makefile}KBUILD_EXTRA_SYMBOLS := $(src)/../core/Module.symvers\n")
    put(tmp_path / "stack/user/read.c")
    monkeypatch.chdir(tmp_path)
    return Path("stack/user")


@pytest.mark.parametrize("build", ["<build>/", ""])
@pytest.mark.parametrize(
    ("error", "missing"),
    [
        ("{}read.c:6:10: fatal error: ../core-counter.h: No such file or directory", "../core-counter.h"),
        ("{}sub/read.c:6:10: fatal error: '../../core-counter.h' file not found", "../core-counter.h"),
        ("{}read.c:6:10: fatal error: own.h: No such file or directory", "../include/own.h"),
        ("../core/Module.symvers: No such file or directory", "../core/Module.symvers"),
        ('ERROR: modpost: "core_count" [{}read.ko] undefined!', "../core/Module.symvers"),
        ("ERROR: modpost: read.ko: symbol 'core_count' undefined!", "../core/Module.symvers"),
    ],
)
def test_missing_file_is_named_with_what_to_do(folder: Path, build: str, error: str, missing: str) -> None:
    hint = outside_hint(error.format(build), folder, read_sources(folder))
    what = f"the lab builds a copy of user alone, without {missing}"

    assert hint == f"{what}: write ./stack/Kbuild with obj-m := core/ user/, and name ./stack/:read-user"
    put(Path("stack/Makefile"), "obj-m := core/ user/\n")
    assert outside_hint(error.format(build), folder, read_sources(folder)) == (
        f"{what}: name the folder above, ./stack/:read-user"
    )


def test_from_within_the_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    hint = outside_hint(MISSING.format("own.h"), Path(), read_sources(Path()))
    assert hint.endswith(
        "user alone, without ../include/own.h: write ../Kbuild with obj-m := core/ user/, and name ../:read-user"
    )


@pytest.mark.parametrize("name", ["absent.h", "../absent.h", "../user/read.c", "linux/absent.h"])
def test_fault_of_an_inside_file_is_another_error(folder: Path, name: str) -> None:
    assert outside_hint(MISSING.format(name), folder, read_sources(folder)) == ""
    assert outside_hint("read.c:1:1: error: no\n", folder, read_sources(folder)) == ""
    assert outside_hint("", folder, read_sources(folder)) == ""


def test_a_symbol_that_a_source_of_the_folder_exports(folder: Path) -> None:
    put(Path("stack/core/core.c"), "void core_count(void) {}\nEXPORT_SYMBOL_GPL( core_count );\n")
    sources = read_sources(Path("stack"))
    said = unlisted_hint('ERROR: modpost: "core_count" [user/read.ko] undefined!', sources)
    assert said.startswith("core/core.c exports core_count, and no module is made of it: ")
    assert unlisted_hint('ERROR: modpost: "core" [user/read.ko] undefined!', sources) == ""
    assert unlisted_hint("read.c:1: error: no", sources) == ""


def test_files_that_were_read_elsewhere_are_noted(tmp_path: Path) -> None:
    scratch, built, kernel = (tmp_path / name for name in ("scratch", "built", "kernel"))
    path, of_kernel, source = put(tmp_path / "mine/own.h", "1"), put(kernel / "x.h"), put(scratch / "m.c")
    deps = "".join(f"  {file} \\\n" for file in (of_kernel, path, tmp_path / "gone.h"))
    put(scratch / "sub/.m.o.cmd", f"source_m.o := {source}\n\ndeps_m.o := \\\n{deps}  include/y.h \\\n")
    built.mkdir()
    assert changed_outside(built) == {}  # an earlier build's
    keep_outside(built, scratch, [kernel])
    assert changed_outside(built) == {}
    path.write_text("2")
    assert [*changed_outside(built)] == [str(path)]
    path.unlink()
    assert changed_outside(built) == {str(path): ""}
    assert [file.name for file in built.iterdir()] == ["outside.json"]
