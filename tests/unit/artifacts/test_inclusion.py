# SPDX-License-Identifier: GPL-2.0-only
"""Does a module of one's own get every file that it includes, however it names it, at its place?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orchestrator.artifacts.module_source import ModuleSource, render_own
from orchestrator.artifacts.sources import included, included_as

MAIN = "own_mine_main.c"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    """Files in a folder, and the path of ``mine/mine.c`` among them."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder / "mine" / "mine.c"


def objects(source: ModuleSource) -> list[str]:
    return source.files["Kbuild"].splitlines()[1].split()[2:]


@pytest.mark.parametrize(
    ("text", "others", "found"),
    [
        ('#include "sub/x.h"\n', {}, ["sub/x.h"]),
        ('#include "./sub/../x.h"\n', {}, ["x.h"]),
        # Beside the file that includes it, as the compiler looks for it, and else from the module's folder.
        ('#include "sub/x.h"\n', {"sub/x.h": '#include "y.h"\n', "sub/y.h": "", "y.h": ""}, ["sub/x.h", "sub/y.h"]),
        ('#include "sub/x.h"\n', {"sub/x.h": '#include "y.h"\n', "y.h": ""}, ["sub/x.h", "y.h"]),
        ('#include "sub/x.h"\n', {"sub/x.h": '#include "../y.h"\n', "y.h": ""}, ["sub/x.h", "y.h"]),
        (
            '#include "../x.h"\n',
            {"../x.h": '#include "common/y.h"\n', "../common/y.h": ""},
            ["../x.h", "../common/y.h"],
        ),
        # By a macro: quoted, for a stringifying one, in another file than the include, over two lines.
        ('#define X "x.h"\n#include X\n', {}, ["x.h"]),
        ("#define X <sub/x.h>\n#include X\n", {}, ["sub/x.h"]),
        ("#include <linux/stringify.h>\n#include __stringify(sub/x.h)\n", {}, ["sub/x.h"]),
        ("#define NAME sub/x.h\n#include __stringify(NAME)\n", {}, ["sub/x.h"]),
        (
            '#define TABLE "x.def"\n#include "each.h"\n',
            {"each.h": "#include TABLE\n", "x.def": ""},
            ["each.h", "x.def"],
        ),
        ('#include "names.h"\n#include X\n', {"names.h": '#define X \\\n\t"x.h"\n'}, ["names.h", "x.h"]),
        ("/* x.h is not needed */\n#define SIZE 3\n", {}, []),
        ('#define FIRMWARE "mine/x.h.bin"\n#include "absent.h"\n', {}, []),
    ],
)
def test_included_files_are_found(tmp_path: Path, text: str, others: Mapping[str, str], found: list[str]) -> None:
    files = {"x.h": "", "sub/x.h": "", **others}
    mine = write(tmp_path, {f"mine/{name}": one for name, one in {**files, "mine.c": text}.items()})
    assert list(included_as(text, [mine.parent])) == found
    assert [path.resolve() for path in included(text, [mine.parent])] == [
        (mine.parent / one).resolve() for one in found
    ]
    assert set(render_own(mine, {}).files) == {MAIN, "Kbuild", *found}


def test_a_source_belongs_to_its_header_and_not_to_the_file_that_includes_it(tmp_path: Path) -> None:
    files = {"sub/x.h": "", "sub/x.c": '#include "part.c"\n', "sub/part.c": "", "y.c": "", "../z.h": "", "../z.S": ""}
    text = '#include "sub/x.h"\n#include "y.c"\n#include "../z.h"\n'
    mine = write(tmp_path, {f"mine/{name}": one for name, one in {**files, "mine.c": text}.items()})
    source = render_own(mine, {})
    assert {"sub/x.c", "sub/part.c", "y.c"} < set(source.files)
    assert objects(source) == ["own_mine_main.o", "sub/x.o", "../z.o"]


def test_a_file_that_leads_out_of_the_folder_stays_in_what_it_is_written_to(tmp_path: Path) -> None:
    elsewhere = write(tmp_path, {"elsewhere.h": "before", "elsewhere.c": ""}).parents[1] / "elsewhere.h"
    text = f'#include "../../a/x.h"\n#include "{elsewhere}"\n'
    mine = write(tmp_path / "top", {"../a/x.h": "x", "mine/mine.c": text})
    source = render_own(mine, {})
    assert source.files[str(elsewhere)] == "before"  # a change of it makes another module
    assert objects(source) == ["own_mine_main.o"]
    elsewhere.write_text("after")
    place = source.write(tmp_path / "written")
    assert (place / MAIN).read_text() == text
    assert (place / "../../a/x.h").read_text() == "x"
    assert place.is_relative_to(tmp_path / "written")
    assert elsewhere.read_text() == "after"


@pytest.mark.parametrize("name", ["x" * 300, "../" * 60 + "x.h", "a\\0b", "", "sub"])
def test_a_name_that_is_no_file_s_is_left_to_the_compiler(tmp_path: Path, name: str) -> None:
    mine = write(tmp_path, {"mine/mine.c": f'#include "{name}"\n', "mine/sub/x.h": ""})
    assert set(render_own(mine, {}).files) == {MAIN, "Kbuild"}


def test_folders_in_a_circle_end(tmp_path: Path) -> None:
    mine = write(tmp_path, {"mine/mine.c": '#include "self/x.h"\n', "mine/x.h": '#include "self/x.h"\n'})
    (mine.parent / "self").symlink_to(".")
    assert len(render_own(mine, {}).files) < 100


@pytest.mark.parametrize("first", ["helper.h", "report.h"])
@pytest.mark.parametrize("place", ["", "sub/"])
def test_a_file_of_the_user_s_comes_before_the_lab_s_in_the_lab_s_own(tmp_path: Path, first: str, place: str) -> None:
    second = {"helper.h": "report.h", "report.h": "helper.h"}[first]
    mine = write(
        tmp_path,
        {
            "mine/mine.c": f'#include "{place}{first}"\n#include "{place}{second}"\n',
            f"mine/{place}helper.h": '#include "ring.h"\n',
            f"mine/{place}ring.h": '#include "own.h"\n',
            f"mine/{place}own.h": "",
            f"lab/{place}report.h": '#include "ring.h"\n#include "life.h"\n',
            **{f"lab/{place}{name}": "" for name in ("ring.h", "ring.c", "life.h", "life.c")},
        },
    )
    paths = included_as(mine.read_text(), [mine.parent, tmp_path / "lab"])
    own, lab = ("helper.h", "ring.h", "own.h"), ("report.h", "life.h", "life.c")
    assert paths == {
        **{f"{place}{name}": mine.parent / place / name for name in own},
        **{f"{place}{name}": tmp_path / "lab" / place / name for name in lab},
    }


def test_a_program_s_compiler_looks_beside_the_file_that_includes(tmp_path: Path) -> None:
    """A source in the user's folder that only the lab's header has the name of is no part of the program."""
    mine = write(tmp_path, {"mine/mine.c": "", "mine/bench.h": "", "mine/bench.c": "", "lab/bench.h": ""})
    write(tmp_path, {"lab/workload.h": '#include "bench.h"\n'})
    paths = included('#include "workload.h"\n', [mine.parent, tmp_path / "lab"])
    assert paths == [tmp_path / "lab/workload.h", tmp_path / "lab/bench.h"]
