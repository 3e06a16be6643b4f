# SPDX-License-Identifier: GPL-2.0-only
"""Are the pages of docs/reference/ what the code says, and does each public thing say something?"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator
from reference_pages import commands, guest, kernel_doc, markdown, pytest_plugin, schemas
from reference_pages.pages import FOLDER, PAGES

from orchestrator.attribute_docs import attribute_docs
from orchestrator.benchmarks.registry import kinds
from orchestrator.cli.main import app
from orchestrator.experiment.experiment import Heading
from orchestrator.experiment.fields import OneOf, Whole
from orchestrator.experiment.guest_spec import MachineSpec
from orchestrator.library.tested_guest import TestedGuest
from orchestrator.results.contract import RunRecord

ROOT = Path(__file__).resolve().parents[2]


@cache
def page(name: str) -> str:
    return PAGES[name]()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert (FOLDER / name).read_text() == page(name), "python -m docs.reference_pages writes the pages anew"


def test_there_is_no_other_page() -> None:
    assert {file.name for file in FOLDER.iterdir()} == set(PAGES)


def test_the_terminal_the_folder_and_the_program_s_name_change_no_page(tmp_path: Path) -> None:
    script = "from reference_pages.pages import PAGES\nprint(*(page() for page in PAGES.values()), sep='', end='')"
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "docs"), str(ROOT / "tests"), str(ROOT)]),
        "COLUMNS": "33",
        "TERM": "dumb",
        "LC_ALL": "C.UTF-8",
        "ORCHESTRATOR_CALLED_AS": "/somewhere/else/lab",
        "ORCHESTRATOR_LAB": str(tmp_path / "results"),
        "ORCHESTRATOR_CACHE": str(tmp_path / "cache"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "".join((FOLDER / name).read_text() for name in PAGES)


@pytest.mark.parametrize("name", PAGES)
def test_no_heading_is_there_twice_and_nothing_is_of_this_machine(name: str) -> None:
    text = page(name)
    headings = [line.lstrip("#").strip() for line in text.splitlines() if line.startswith("#")]
    code = [line for block in text.split("```")[1::2] for line in block.splitlines() if line.startswith("#")]
    anchors = [markdown.anchor(heading) for heading in headings if not any(heading in line for line in code)]
    assert len(anchors) == len(set(anchors))
    assert str(ROOT) not in text
    assert str(Path.home()) not in text


# --- all that is public is there --------------------------------------------------------------------


def test_each_verb_of_a_guest_is_on_its_page_or_is_not_for_tests() -> None:
    shown = [*(name for group in guest.GROUPS.values() for name in group), *guest.PROPERTIES]
    assert sorted([*shown, *guest.NOT_FOR_TESTS]) == sorted(guest.public_names())


def test_a_verb_without_a_docstring_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TestedGuest.load, "__doc__", None)
    with pytest.raises(markdown.Undescribed, match="load"):
        guest.page()


def test_each_key_of_an_experiment_is_on_its_page() -> None:
    text = page("experiment-file.md")
    wanted = {f"file: {key}" for key in Heading.model_fields} | {f"machine: {key}" for key in MachineSpec.model_fields}
    wanted |= set(kinds().table_keys)
    for kind in kinds():
        keys = kind.table.model_fields["benchmark"].annotation.model_fields  # type: ignore[union-attr]
        wanted |= {f"{kind.name}: {key}" for key in keys if key != "name"}
    assert {heading for heading in wanted if f"\n### {heading}\n" not in text} == set()


def test_a_key_without_a_docstring_is_an_error() -> None:
    class Undescribed(BaseModel):
        key: int

    with pytest.raises(markdown.Undescribed, match="key"):
        list(schemas.sections_to_read({"Title": Undescribed}))
    with pytest.raises(markdown.Undescribed, match="key"):
        list(schemas.sections_to_write({"Title": Undescribed}))


def test_an_option_without_help_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    root: Any = typer.main.get_command(app)
    root.commands["run"].params[-1].help = None
    monkeypatch.setattr(typer.main, "get_command", lambda app: root)
    with pytest.raises(markdown.Undescribed, match="--verbose"):
        commands.page()


def test_every_fixture_is_on_the_page_of_the_plugin() -> None:
    text = pytest_plugin.page()
    assert {"guest", "kmod", "ktap", "probe_cost"} <= set(pytest_plugin.FIXTURES)
    assert [name for name in pytest_plugin.FIXTURES if f"\n## {name}\n" not in text] == []


# --- what the pages are made with -------------------------------------------------------------------


class Base:
    """Is of no module of the lab's."""


def test_docstrings_of_attributes_are_those_of_the_class_and_of_its_bases() -> None:
    machine = attribute_docs(MachineSpec)
    assert list(machine) == ["cpu", "smp", "memory"]
    assert machine["smp"] == "Virtual CPUs, at most 16. Counted instructions need 1."
    assert attribute_docs(Base) == {}
    assert attribute_docs(RunRecord)["run"] == "The run's id."


def test_a_check_that_knows_its_values_can_be_asked_for_them() -> None:
    annotation = Annotated[str, BeforeValidator(OneOf(lambda: ["a", "b"]))]
    (check,) = (arg.func for arg in get_args(annotation)[1:])
    assert list(check.choices()) == ["a", "b"]
    assert check("a") == "a"
    assert Whole(1, 3)(2) == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("``a  b`` and *c*", r"`a b` and \*c\*"),
        ("see <here> [now]", r"see \<here> \[now\]"),
        ("_private and some_name", r"\_private and some_name"),
        ("`exit` ends it", "`exit` ends it"),
    ],
)
def test_text_has_no_markup_but_code(text: str, line: str) -> None:
    assert markdown.inline(text) == line


def test_no_line_of_filled_text_begins_a_list() -> None:
    text = "word " * 23 + "128 + the signal, - and so on, 12. or > of it # too"
    lines = markdown.filled(text).splitlines()
    assert len(lines) > 1
    assert all(len(line) <= markdown.WIDTH for line in lines)
    assert not any(line.startswith(("+", "-", ">", "#", "12.")) for line in lines)
    assert " ".join(lines) == text


def test_a_table_keeps_what_ends_an_entry() -> None:
    assert markdown.table(("a", "b"), [("x | y", "z")]).splitlines()[-1] == r"| x \| y | z |"


# --- kernel-doc -------------------------------------------------------------------------------------

_SOURCE = (ROOT / "tests" / "unit" / "golden" / "kernel_doc.h").read_text()


def test_kernel_doc_has_declarations_parameters_and_sections() -> None:
    pair, add, twice, typedef, calls, flavour = kernel_doc.documented(_SOURCE)
    assert (pair.kind, pair.name, pair.purpose) == ("struct", "pair", "two numbers")
    assert pair.declaration == "struct pair {\n\tint first;\n\n\tint second;\n};"
    assert pair.parameters == {"first": "the one, which\ngoes on", "second": "the other"}
    assert pair.description == "Some words."
    assert (add.kind, add.declaration) == ("function", "static inline int add(const struct pair *pair);")
    assert (add.description, add.parameters) == ("How.", {"pair": "what is added"})
    assert add.sections == {"Context": "may sleep.", "Return": "the sum, or:\n\n* -ERANGE: it does not fit"}
    assert (twice.declaration, twice.parameters) == ("TWICE(number)", {"number": "evaluated twice"})
    assert typedef.declaration == "typedef int sum(const struct pair *pair, int more);"
    assert [documented.undescribed for documented in (pair, add, twice, typedef)] == [
        set(),
        set(),
        set(),
        {"pair", "more"},
    ]
    assert (calls.undescribed, flavour.undescribed) == ({"second"}, {"SOUR"})


def test_a_file_s_first_comment_is_what_it_says_of_itself() -> None:
    assert kernel_doc.first_comment(_SOURCE) == "What this file is for.\n\n\tcode(of, it);"
    assert kernel_doc.first_comment("int one;\n/*\n * late\n */\n") == ""


def test_the_code_of_a_module_s_comment_is_marked_as_what_it_is() -> None:
    assert "```sh\ninsmod djprobe.ko\ninsmod djprobe_example.ko symbol=vfs_read\n" in PAGES["djprobe.md"]()
    page = PAGES["marker.md"]()
    for opening in ("```sh\ninsmod marker.ko", "```text\nNAME FLAVOUR", "```c\nkernel_marker_connect("):
        assert opening in page


def test_an_export_with_a_comment_is_not_for_users() -> None:
    source = "EXPORT_SYMBOL_GPL(one);\n/* Of a macro. */\nEXPORT_SYMBOL_GPL(two);\n"
    assert kernel_doc.exported(source) == ["one"]


@pytest.mark.parametrize("title", ["add - without brackets", "add(): another sign", ""])
def test_a_comment_that_is_no_kernel_doc_is_an_error(title: str) -> None:
    with pytest.raises(kernel_doc.Malformed):
        kernel_doc.documented(f"/**\n * {title}\n */\nint add(void);\n")


def _words() -> st.SearchStrategy[str]:
    return st.text("abc xyz,.", min_size=1, max_size=40).map(str.strip).filter(bool)


@given(
    purpose=_words(),
    parameters=st.dictionaries(st.text("abcxyz", min_size=1, max_size=8), _words(), max_size=4),
    description=_words(),
)
def test_kernel_doc_is_read_as_it_was_written(purpose: str, parameters: dict[str, str], description: str) -> None:
    lines = [f"f() - {purpose}", *(f"@{name}: {text}" for name, text in parameters.items()), "", description]
    source = "\n".join(["/**", *(f" * {line}".rstrip() for line in lines), " */", "int f(void);", ""])
    (documented,) = kernel_doc.documented(source)
    assert (documented.purpose, documented.parameters, documented.description) == (purpose, parameters, description)


def _comments() -> Iterator[Path]:
    yield from (ROOT / "kmods").rglob("*.[ch]")


def test_every_kernel_doc_comment_of_the_modules_can_be_read() -> None:
    found = [documented.name for file in _comments() for documented in kernel_doc.documented(file.read_text())]
    assert {"djprobe", "register_djprobe", "jprobe", "jprobe_return", "marker_connect"} <= set(found)


def test_every_header_of_a_users_module_has_a_page_that_says_how_it_is_used() -> None:
    own = (ROOT / "docs" / "modules.md").read_text().partition("## Parameters of a module")[0]
    included = set(re.findall(r'^#include "(\w+)\.h"', own, re.MULTILINE))
    assert included == {"report", "ring", "point"}
    for name in included | {"djprobe", "jprobe", "marker"}:
        text = (FOLDER / f"{name}.md").read_text()
        assert f'#include "{name}.h"' in text
        assert "gets the implementation within it" in text.replace("\n", " ")
    assert "MARKERS(example_markers);" in (FOLDER / "marker.md").read_text()
