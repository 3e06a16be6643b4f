# SPDX-License-Identifier: GPL-2.0-only
"""Does a person see what the compiler says of a module, with the place in the file that he has written?"""

from __future__ import annotations

from pathlib import Path

import pytest
from tiny_modules import tiny_kernel, tiny_module

from orchestrator.artifacts.build_context import BuildContext
from orchestrator.artifacts.module_source import ModuleSource, render_own
from orchestrator.artifacts.modules import Module, build_modules
from orchestrator.errors import BuildError
from orchestrator.run.user_modules import compiler_note
from orchestrator.steps import step_log

UNUSED = """#include "shared.h"

int tiny(void)
{
\tint unused;

\treturn shared();
}
"""
BROKEN = "int tiny(void)\n{\n\treturn absent;\n}\n"
MAIN = "lab_tiny_main.c"


def built(context: BuildContext, root: Path, source: ModuleSource) -> Module:
    (module,) = build_modules(context, tiny_kernel(root), [source])
    assert isinstance(module, Module), module
    return module


def failure(context: BuildContext, root: Path, source: ModuleSource) -> BuildError:
    (error,) = build_modules(context, tiny_kernel(root), [source])
    assert isinstance(error, BuildError)
    return error


def test_a_warning_has_the_users_own_file_and_line(context: BuildContext, tmp_path: Path, warned: list[str]) -> None:
    file = tmp_path / "my folder" / "mine.c"
    source = tiny_module({MAIN: UNUSED}, {MAIN: file})
    module = built(context, tmp_path / "kernel", source)
    (text,) = warned
    assert text.splitlines()[0] == "module lab_tiny for debian-amd64 builds with warnings:"
    assert f"{file}:5:13: warning: unused variable 'unused' [-Wunused-variable]" in text.splitlines()
    assert "/tmp/" not in text.replace(str(tmp_path), "")
    assert list(module.warnings) == text.splitlines()[1:]


def test_a_cached_module_shows_its_warnings_again(context: BuildContext, tmp_path: Path, warned: list[str]) -> None:
    """With the place where its source is now: the same text may lie elsewhere."""
    for number, name in enumerate(("one.c", "two.c", "two.c")):
        built(context, tmp_path / str(number), tiny_module({MAIN: UNUSED}, {MAIN: tmp_path / name}))
    assert len(list((tmp_path / "cache" / "modules").glob("*/manifest.json"))) == 1
    assert [f"{tmp_path}/one.c:5:" in text for text in warned] == [True, False, False]
    assert [f"{tmp_path}/two.c:5:" in text for text in warned] == [False, True, True]


def test_a_warning_of_a_template_names_the_rendered_line(
    context: BuildContext, tmp_path: Path, warned: list[str]
) -> None:
    file = tmp_path / "mine.c.j2"
    built(context, tmp_path / "kernel", tiny_module({MAIN: UNUSED}, {MAIN: file}))
    assert f"{file} (line 5 of the rendered file): warning: unused variable" in warned[0]
    assert f"{file}: In function 'tiny':" in warned[0]


def test_several_cells_show_a_warning_once(context: BuildContext, tmp_path: Path, warned: list[str]) -> None:
    source = tiny_module({MAIN: UNUSED}, {MAIN: tmp_path / "mine.c"})
    build_modules(context, tiny_kernel(tmp_path / "kernel"), [source, source])
    assert len(warned) == 1


def test_a_module_without_warnings_shows_nothing(context: BuildContext, tmp_path: Path, warned: list[str]) -> None:
    assert built(context, tmp_path / "kernel", tiny_module({})).warnings == ()
    assert warned == []


def test_what_the_build_system_says_of_itself_is_no_warning(
    context: BuildContext, tmp_path: Path, warned: list[str]
) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    chatter = """
$(info a line on standard output)
$(shell echo 'warning: the compiler differs from the one used to build the kernel' >&2)
$(shell echo '  The kernel was built by: gcc-12 (Debian 12.2.0-14) 12.2.0' >&2)
$(shell echo '  You are using:           gcc (Debian 12.2.0-14) 12.2.0' >&2)
$(shell echo 'warning: pahole version differs from the one used to build the kernel' >&2)
$(shell echo '  The kernel was built with: 130' >&2)
$(shell echo 'Skipping BTF generation for x.ko due to unavailability of vmlinux' >&2)
"""
    kernel.headers_makefile.write_text(kernel.headers_makefile.read_text() + chatter)
    (module,) = build_modules(context, kernel, [tiny_module({})])
    assert isinstance(module, Module)
    assert (module.warnings, warned) == ((), [])


def test_the_log_of_steps_has_the_warnings(context: BuildContext, tmp_path: Path) -> None:
    with step_log(tmp_path / "lab.log"):
        built(context, tmp_path / "kernel", tiny_module({MAIN: UNUSED}, {MAIN: tmp_path / "mine.c"}))
    assert f"{tmp_path}/mine.c:5:13: warning: unused variable 'unused'" in (tmp_path / "lab.log").read_text()


def test_the_record_notes_the_warnings(context: BuildContext, tmp_path: Path) -> None:
    kernel = tiny_kernel(tmp_path / "kernel")
    source = tiny_module({MAIN: UNUSED}, {MAIN: tmp_path / "mine.c"})
    (module,) = build_modules(context, kernel, [source])
    assert isinstance(module, Module)
    warning = f"{tmp_path}/mine.c:5:13: warning: unused variable 'unused' [-Wunused-variable]"
    assert compiler_note(kernel, module)[-1] == f"the compiler warns about lab_tiny: {warning}"
    assert compiler_note(kernel, None) == ()


def test_an_error_has_the_users_own_file_and_line(context: BuildContext, tmp_path: Path) -> None:
    file = tmp_path / "mine.c"
    error = failure(context, tmp_path / "kernel", tiny_module({MAIN: BROKEN}, {MAIN: file}))
    assert error.where == f"{file}:3"
    assert error.detail[0].startswith(f"{file}:3:16: error: 'absent' undeclared")


def test_an_error_of_a_template_names_the_rendered_line(context: BuildContext, tmp_path: Path) -> None:
    file = tmp_path / "mine.c.j2"
    error = failure(context, tmp_path / "kernel", tiny_module({MAIN: BROKEN}, {MAIN: file}))
    assert error.where == f"{file} (line 3 of the rendered file)"
    (kept,) = (tmp_path / "cache" / "failed-builds").iterdir()
    assert error.hint == f"the rendered sources are in {kept}"
    assert (kept / MAIN).read_text() == BROKEN


def test_a_users_module_knows_where_its_files_are_from(tmp_path: Path) -> None:
    (tmp_path / "mine.c").write_text('#include "mine.h"\n#include "ksym.h"\n')
    (tmp_path / "mine.h").write_text("")
    origins = render_own(tmp_path / "mine.c", {}).origins
    assert origins["own_mine_main.c"] == tmp_path / "mine.c"
    assert origins["mine.h"] == tmp_path / "mine.h"
    assert origins["ksym.c"].parent.name == "lib"


@pytest.mark.parametrize(("header", "checked"), [("marker.h", True), ("ksym.h", False)])
def test_formats_are_checked_where_there_are_markers(tmp_path: Path, header: str, checked: bool) -> None:
    (tmp_path / "mine.c").write_text(f'#include "{header}"\n')
    kbuild = render_own(tmp_path / "mine.c", {}).files["Kbuild"]
    assert (" -Werror=format -Werror=format-extra-args\n" in kbuild) == checked
