# SPDX-License-Identifier: GPL-2.0-only
"""Does the help of each command end with two examples, and can they be run as they stand?"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from orchestrator.cli.main import app, examples

_SHELL = ("&&", "|")
"""What ends an example's command, for a shell; a word may begin with ``>`` besides."""


def all_commands(command: Any, *names: str) -> Iterator[tuple[str, Any]]:
    """Each command by its name behind its group's."""
    for name, below in getattr(command, "commands", {}).items():
        yield from all_commands(below, *names, name)
    if not hasattr(command, "commands"):
        yield " ".join(names), command


ROOT: Any = typer.main.get_command(app)


COMMANDS = dict(all_commands(ROOT))


@pytest.mark.parametrize("name", ROOT.commands)
def test_the_list_of_commands_has_the_first_line_of_each_one_s_help(name: str) -> None:
    printed = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "300"}).stdout.splitlines()
    line = f"{name} {ROOT.commands[name].help.partition(chr(10))[0]}"
    assert line in [" ".join(text.split()) for text in printed]


def test_each_command_has_two_examples() -> None:
    assert {name: len(those) for name, those in examples().items()} == dict.fromkeys(COMMANDS, 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_an_example_is_one_of_its_command_and_has_options_that_there_are(name: str) -> None:
    for example in examples()[name]:
        words = shlex.split(example)
        end = next((at for at, word in enumerate(words) if word in _SHELL or word.startswith(">")), len(words))
        called, arguments = words[: len(name.split())], words[len(name.split()) : end]
        assert " ".join(called) == name
        COMMANDS[name].make_context(name, arguments)


@pytest.mark.parametrize("name", ["run", "build module"])
def test_help_ends_with_them_each_on_a_line_that_can_be_pasted(name: str) -> None:
    printed = CliRunner().invoke(app, [*name.split(), "--help"], env={"COLUMNS": "100"}, prog_name="orchestrator")
    lines = [line.strip() for line in printed.stdout.splitlines() if line.strip()]
    assert lines[-3:] == ["Examples:", *(f"orchestrator {example}" for example in examples()[name])]


# Do usage lines, hints and help name the program as the user has called it?

PACKAGE = Path(__file__).resolve().parents[3] / "orchestrator"


CALLED = """
import sys
from orchestrator.cli.main import main
for words in sys.argv[1].split(";"):
    sys.argv[1:] = words.split()
    try:
        main()
    except SystemExit:
        pass
"""


def called(as_what: str, commands: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Call commands, between semicolons, in one process, which learns from its environment what it is called."""
    command = [sys.executable, "-c", CALLED, commands]
    called_as = {"ORCHESTRATOR_CALLED_AS": as_what} if as_what else {}
    environment = {**os.environ, **called_as, **settings}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)


@pytest.mark.parametrize(("as_what", "name"), [("", "orchestrator"), ("/a lab & more/lab", "'/a lab & more/lab'")])
def test_usage_and_hints(as_what: str, name: str, tmp_path: Path) -> None:
    done = called(as_what, "-h;run;report", ORCHESTRATOR_LAB=str(tmp_path))
    assert ("(without apt)" in done.stdout) == bool(as_what)  # commands of the checkout's script alone
    *usage, _, hint = done.stderr.splitlines()
    assert usage == [
        "error: CONFIG... is missing",
        f"hint: for example {name} run configs/quickstart.yaml; see: {name} run -h",
    ]
    assert hint == f"hint: start one: {name} run CONFIG"


def test_a_shell_that_was_named_before_it(tmp_path: Path) -> None:
    said = called("lab", "report", ORCHESTRATOR_LAB=str(tmp_path), ORCHESTRATOR_CALLED_BY="sh").stderr
    assert said.splitlines()[-1] == "hint: start one: sh lab run CONFIG"


def test_the_checkouts_script_alone_has_tests_to_run_and_completion_is_for_the_installed_name() -> None:
    # Without this typer looks for the shell among this process's parents, where a nightly run may have none.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = called("./lab", "-h;--show-completion bash", **named).stdout
    assert "Also `./lab test`, `container` (without apt) and `mcp` (for assistants): -h." in script
    assert script.splitlines()[-1] == "complete -o default -F _orchestrator_completion orchestrator"
    words = {"COMP_WORDS": "orchestrator ru", "COMP_CWORD": "1", "_ORCHESTRATOR_COMPLETE": "complete_bash"}
    assert called("./lab", "", **words).stdout.split() == ["run"]


@pytest.fixture(scope="module")
def modules() -> Mapping[Path, Sequence[ast.AST]]:
    """All that each module of the package consists of."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE): [*ast.walk(ast.parse(file.read_text()))] for file in files}


def test_no_message_spells_the_program(modules: Mapping[Path, Sequence[ast.AST]]) -> None:
    commands = "|".join(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    spelled = re.compile(rf"(\./lab|(?<!``)\borchestrator) ({commands})\b")
    found = [f"{file}: {text}" for file, nodes in modules.items() for text in texts(nodes) if spelled.search(text)]
    found += [f"{page.name}: {line}" for page in PACKAGE.rglob("*.j2") for line in page.open() if spelled.search(line)]
    assert found == [], "messages take PROGRAM of orchestrator/program.py"


def test_no_command_is_put_together_with_the_program_s_name(modules: Mapping[Path, Sequence[ast.AST]]) -> None:
    commands = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    found = [
        f"{file}:{node.lineno}"
        for file, nodes in modules.items()
        for node in nodes
        if isinstance(node, ast.List | ast.Tuple)
        and _words(node)[:1] == ["orchestrator"]
        and {*_words(node)} & commands
    ]
    assert found == [], "command() of orchestrator/program.py makes them"


def _words(node: ast.List | ast.Tuple) -> list[object]:
    return [elt.value for elt in node.elts if isinstance(elt, ast.Constant)]


def texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """The strings of a module that are no docstrings."""
    documentation = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documentation:
            yield node.value
