# SPDX-License-Identifier: GPL-2.0-only
"""Is a build's first error shown, whichever program printed it, once; and does a hint ask for what is not there?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_modules import tiny_kernel, tiny_module

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.cache import Cache
from orchestrator.artifacts.diagnostics import Origins, SourceLine, build_error, compile_error, error_hint, error_lines
from orchestrator.artifacts.modules import build_modules
from orchestrator.errors import BuildError
from orchestrator.process import Finished
from orchestrator.report.footnotes import shared_key

STEPS = "  CC [M]  mine.o\n  LD [M]  mine.ko\n"
END = (
    "make[1]: *** [/linux/scripts/Makefile.build:255: mine.o] Error 1\nmake: *** [/linux/Makefile:2065: here] Error 2\n"
)


@pytest.mark.parametrize(
    "error",
    [
        "<build>/mine.c:3:1: error: expected ';'",
        "<build>/mine.c:1:10: fatal error: 'x.h' file not found",
        "clang: error: unsupported option '-fconserve-stack'",
        "error: unknown warning option '-Wx' [-Werror,-Wunknown-warning-option]",
        "<inline asm>:1:2: error: invalid instruction mnemonic 'frob'",
        "<scratch space>:12:1: error: use of undeclared identifier 'x'",
        "cc1: error: incompatible gcc/plugin versions",
        "<build>/stub.S:12: Error: no such instruction: `frob'",
        "ld: mine.o: in function `mine_init':",
        "/usr/bin/ld.bfd: cannot find absent.o: No such file or directory",
        "mine.c:(.text+0x1): undefined reference to `absent'",
        "ld.lld: error: undefined symbol: absent",
        "<build>/b.c:2: multiple definition of `x'; <build>/a.o:<build>/a.c:1: first defined here",
        'ERROR: modpost: "absent" [<build>/mine.ko] undefined!',
        "FATAL: modpost: parse error in symbol dump file",
        "<build>/mine.o: error: objtool: mine_init+0x3: unsupported instruction",
        "make[2]: *** No rule to make target 'absent.o', needed by 'mine.o'.  Stop.",
        "<build>/Kbuild:2: *** missing separator.  Stop.",
    ],
)
def test_the_first_error_of_any_program_is_found(error: str) -> None:
    before = (
        "<build>/mine.c:2:5: warning: iteration 5 invokes undefined behavior [-Waggressive-loop-optimizations]\n"
        "/usr/bin/ld: warning: mine.o: missing .note.GNU-stack section implies executable stack\n"
    )
    assert error_lines(f"{STEPS}{before}{error}\n   more words\n{END}") == [error, "   more words"]


@pytest.mark.parametrize("words", ["sh: 1: frob: not found", "pahole: Multiple versions of BTF\nfailed to load BTF"])
def test_what_a_program_says_that_does_not_call_it_an_error(words: str) -> None:
    assert error_lines(f"{STEPS}{words}\n{END}") == words.splitlines()


def test_where_nothing_is_said_but_by_make(tmp_path: Path) -> None:
    assert error_lines(f"{STEPS}{END}")[0].startswith("make[1]: *** [")
    assert error_lines("") == []
    assert error_hint("", tmp_path) == ""


def test_an_error_of_a_header_is_shown_once() -> None:
    header = "<build>/x.h:1:5: error: unknown type name 'in'\n    1 | in x;\n      | ^~\n"
    files = [f"In file included from <build>/{name}.c:1:\n{header}" for name in "abc"]
    other = "<build>/c.c: In function 'f':\n<build>/c.c:4:1: error: expected ';'\n"
    assert error_lines("".join(files) + other + END) == (header + other).splitlines()


def test_the_first_error_is_not_pushed_out_by_what_a_macro_expands_to() -> None:
    """clang prints a note for each macro that another one uses."""
    first = "/mine/x.bpf.c:7:9: error: no member named 'pids' in 'struct task_struct'"
    notes = "".join(f"/usr/include/bpf/core.h:{n}:1: note: expanded from macro 'M{n}'\n" for n in range(40))
    error = compile_error(
        "x.bpf.c", Finished(("clang", "-c", "x.bpf.c"), 1, "", f"{first}\n{notes}1 error generated.\n")
    )
    assert (error.where, error.detail[:2]) == ("/mine/x.bpf.c:7", ("$ clang -c x.bpf.c", first))
    assert len(error.detail) == 21


def test_an_error_is_one_for_all_kernels(tmp_path: Path) -> None:
    """Cells without a number are shown together where they have one reason."""
    broken = tiny_module({"lab_tiny_main.c": "int tiny(void) { return 0 }\n"}, {"lab_tiny_main.c": tmp_path / "mine.c"})
    reasons = set()
    for name in ("one", "other"):
        context = BuildContext(Cache(tmp_path / "cache"))
        (error,) = build_modules(context, tiny_kernel(tmp_path / name), [broken])
        assert isinstance(error, BuildError)
        reasons.add(str(error))
    assert len(reasons) == 1
    places = (f"-o /cache/workloads/{digit * 24}.building/own.bpf.o" for digit in "ab")
    assert len({shared_key(place) for place in places}) == 1


@pytest.mark.parametrize("form", ["fatal error: {}: No such file or directory", "fatal error: '{}' file not found"])
@pytest.mark.parametrize(
    ("name", "files", "hint"),
    [
        (
            "absent.h",
            (),
            "put absent.h beside the source; a module of several folders is named by its folder, with a K",
        ),
        ("./there.h", (), 'there.h is there: have a line #include "there.h", or name the module by its folder, with a'),
        ("sub/x.h", (), 'sub/x.h is there: have a line #include "sub/x.h", or'),
        (
            "x.h",
            ("sub/x.h", "mine.c"),
            "sub/x.h is there, and not where the compiler looks: a Kbuild has to have ccflags",
        ),
        ("x.h", ("x.h",), "x.h is there, and not where the compiler looks: a Kbuild has to have ccflags-y := -I$(src)"),
        ("linux/absent.h", (), "this kernel has no linux/absent.h; another version may have it"),
    ],
)
def test_a_hint_does_not_ask_for_what_is_there(
    tmp_path: Path, form: str, name: str, files: tuple[str, ...], hint: str
) -> None:
    (tmp_path / "sub").mkdir()
    for there in ("there.h", "sub/x.h"):
        (tmp_path / there).touch()
    assert error_hint(f"<build>/mine.c:1:1: {form.format(name)}\n", tmp_path, files).startswith(hint)


MINE = Path("/mine")
ORIGINS = Origins(
    {
        **{f"own_m{end}": MINE / "m.c" for end in ("_main.c", "_main.o", ".o", ".ko", ".mod.c")},
        "sub/x.h": MINE / "sub/x.h",
        "t_main.c": MINE / "t.c.j2",
        "u_main.c": MINE / "u.c.j2",
    },
    {"t_main.c": lambda: [SourceLine(MINE / "t.c.j2", 4), SourceLine(MINE / "part.j2", 1)], "u_main.c": list},
)


@pytest.mark.parametrize("build", ["<build>/", ""])
@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("{}own_m_main.c:6:24: error: no", "/mine/m.c:6:24: error: no"),
        ("{}own_m_main.c: In function 'go':", "/mine/m.c: In function 'go':"),
        ("In file included from {}own_m_main.c:2,", "In file included from /mine/m.c:2,"),
        ("                 from {}sub/x.h:1:", "                 from /mine/sub/x.h:1:"),
        (
            "WARNING: modpost: {}own_m.ko: no MODULE_DESCRIPTION()",
            "WARNING: modpost: /mine/m.c: no MODULE_DESCRIPTION()",
        ),
        ("{}own_m_main.o: warning: objtool: go+0x1: no", "/mine/m.c: warning: objtool: go+0x1: no"),
        ("{}t_main.c:2:8: error: no", "/mine/part.j2:1: error: no"),
        ("{}t_main.c:9:8: error: no", "/mine/t.c.j2 (line 9 of the rendered file): error: no"),
        ("{}u_main.c:1:8: error: no", "/mine/u.c.j2 (line 1 of the rendered file): error: no"),
    ],
)
def test_a_place_is_the_user_s_wherever_the_build_ran(build: str, line: str, shown: str) -> None:
    """Since Linux 6.13 kbuild makes external modules in their folder, and names files relative to it."""
    assert ORIGINS.located(line.format(build)) == shown


@pytest.mark.parametrize("line", ['    6 | #include "sub/x.h"', "/linux/sub/x.h:1:1: error: no", "other/own_m.ko: no"])
def test_other_files_of_the_same_name_stay(line: str) -> None:
    assert ORIGINS.located(line) == line


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        (["own_m_main.c:6:24: error: no"], "/mine/m.c:6"),
        (["In file included from own_m_main.c:2:", "/linux/x.h:1:1: error: no"], "/mine/m.c:2"),
        (
            ["In file included from /linux/y.h:2,", "                 from own_m_main.c:3:", "/linux/x.h:1: error: no"],
            "/mine/m.c:3",
        ),
        (["/linux/x.h:1:1: error: no", "   1 | x", "own_m_main.c:9:2: note: in expansion of macro 'X'"], "/mine/m.c:9"),
        (["sub/x.h:4:1: error: no"], "/mine/sub/x.h:4"),
        (['ERROR: modpost: own_m.ko: symbol "no" undefined!'], "/mine/m.c"),
    ],
)
def test_an_error_s_place_is_a_line_of_the_user_s(lines: list[str], place: str) -> None:
    assert build_error("no", "\n".join(lines), ORIGINS, MINE / "m.c", []).where == place


GOLDEN = Path(__file__).parents[2] / "qemu" / "golden" / "refused_modules.txt"
"""What was said of modules that a kernel's build system refuses; every night they are built again."""
BUILDS = [section.splitlines() for section in GOLDEN.read_text("utf-8").split("\n\n") if "does not build" in section]


@pytest.mark.parametrize("section", BUILDS, ids=lambda section: section[0].removeprefix("# "))
def test_what_a_kernel_s_build_says_leads_to_its_hint(tmp_path: Path, section: list[str]) -> None:
    said = [line.strip() for line in section if line.startswith("    ")]
    shown = [line.removeprefix("hint: ") for line in section if line.startswith("hint: ")]
    assert error_lines("\n".join(said)) == said
    assert error_hint("\n".join(said), tmp_path) == "".join(shown)
