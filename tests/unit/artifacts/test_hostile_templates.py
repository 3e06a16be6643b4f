# SPDX-License-Identifier: GPL-2.0-only
"""Does a template of somebody's reach nothing but its values, and a path of any name no shell and no make?"""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hostile_texts import HOSTILE, hostile_texts
from hypothesis import given

from orchestrator.artifacts.module_source import check_parameters, render_own
from orchestrator.errors import ConfigError, LabError, UsageError
from orchestrator.paths import kbuild_takes

BREAKING_OUT = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.popen('touch broken-out') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ lipsum.__globals__['os'].environ }}",
    "{{ symbol.format.__globals__ }}",
    "{{ '{0.__class__}'.format(symbol) }}",
    "{% include '../secret' %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as os %}",
]
FAILING = [
    *("{{ 1 // 0 }}", "{{ 1 + 'a' }}", "{{ range(1000000) | list }}", "{{ ''.join(1) }}", "{{ 'a'.index('b') }}"),
    "{% macro again() %}{{ again() }}{% endmacro %}{{ again() }}",
]


@pytest.mark.parametrize("expression", BREAKING_OUT)
def test_a_template_does_not_get_out(tmp_path: Path, expression: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    monkeypatch.chdir(folder)
    (tmp_path / "secret").write_text("secret")
    (folder / "mine.c.j2").write_text(f"int a;\n{expression}\n")
    with pytest.raises(LabError) as refused:
        render_own(folder / "mine.c.j2", {"symbol": "do_nanosleep"})
    assert refused.value.what
    assert [file.name for file in folder.iterdir()] == ["mine.c.j2"]


@pytest.mark.parametrize("expression", FAILING)
def test_a_template_that_fails_is_an_error_with_its_line(tmp_path: Path, expression: str) -> None:
    file = tmp_path / "mine.c.j2"
    file.write_text(f"int a;\n{expression}\n")
    with pytest.raises(ConfigError, match="the template fails: ") as failed:
        render_own(file, {})
    assert failed.value.where == f"{file}:2"


@pytest.mark.parametrize("text", HOSTILE)
def test_a_value_is_a_word_of_c_or_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.c.j2"
    file.write_text('const char *name = "{{ symbol }}";\n')
    try:
        source = render_own(file, {"symbol": text})
        check_parameters({"symbol": text})
    except UsageError as error:
        refusal = error
        assert refusal.what.isprintable()
    else:
        (literal,) = re.findall(r'"((?:[^"\\\n]|\\.)*)"', source.files["own_mine_main.c"])
        assert literal == text


def probed(path: Path) -> list[str]:
    """The words that a shell makes of a path that make gives it unquoted."""
    makefile = "all:\n\t@printf '%s\\n' $(M)/x\n"
    done = subprocess.run(["make", "-f", "-", f"M={path}"], input=makefile, capture_output=True, check=True, text=True)
    return done.stdout.splitlines()


@given(hostile_texts)
def test_a_path_that_the_build_takes_is_one_word(text: str) -> None:
    path = Path("/x", text.replace("\0", "_").replace("/", "_") or "_")
    if kbuild_takes(path):
        assert shlex.split(str(path)) == [str(path)]


@pytest.mark.parametrize("text", HOSTILE)
def test_a_path_that_the_build_takes_is_the_same_for_make_and_its_shell(text: str) -> None:
    path = Path("/x", text.replace("\0", "_").replace("/", "_") or "_")
    if kbuild_takes(path):
        assert probed(path) == [f"{path}/x"]
