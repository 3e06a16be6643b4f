# SPDX-License-Identifier: GPL-2.0-only
"""Is what the README and docs/ show true: commands, their output, experiments, links?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import typer
import yaml
from documentation import (
    PAGES,
    ROOT,
    WITH_GUEST,
    WITHOUT_GUEST,
    Block,
    Example,
    all_blocks,
    blocks,
    check_output,
    examples,
    write_files,
)
from stored_histories import broken, counted, store_days
from typer.testing import CliRunner

from orchestrator.benchmarks.registry import kinds
from orchestrator.cli.main import app
from orchestrator.experiment.file import load_experiment

LARGEST_README = 8192


_MARK = re.compile(rf"|output|file: [\w./-]+|{WITHOUT_GUEST}|{WITH_GUEST}")


_LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")


_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


YAML = [block for block in all_blocks() if block.language == "yaml"]


COMMANDS = [block for block in all_blocks() if block.language == "sh" and block.commands()]


def is_experiment(block: Block) -> bool:
    data = yaml.safe_load(block.text)
    return isinstance(data, dict) and "name" in data and bool({"tables", "kernels"} & set(data))


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text()) <= LARGEST_README


@pytest.mark.parametrize("block", [block for block in YAML if is_experiment(block)], ids=str)
def test_an_experiment_loads(block: Block, tmp_path: Path) -> None:
    write_files(block.page, tmp_path)
    file = tmp_path / "experiment-of-a-page.yaml"
    file.write_text(block.text)
    load_experiment(file, kinds())


def test_all_that_is_yaml_parses_and_some_are_experiments() -> None:
    assert all(yaml.safe_load(block.text) is not None for block in YAML)
    assert sum(map(is_experiment, YAML)) > 10


@pytest.mark.parametrize("example", examples(WITHOUT_GUEST), ids=str)
def test_a_command_does_what_the_page_shows(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(example.block.page, tmp_path)
    monkeypatch.chdir(tmp_path)
    folders = {"ORCHESTRATOR_CACHE": str(tmp_path / "cache"), "ORCHESTRATOR_LAB": str(tmp_path / "lab")}
    printed = ""
    for command in example.commands():
        done = CliRunner().invoke(app, command, env={**folders, "COLUMNS": "100"})
        assert done.exit_code == 0, done.output
        printed += done.stdout
    check_output(example, printed)


@pytest.mark.parametrize("block", COMMANDS, ids=str)
def test_a_command_s_options_are_there(block: Block) -> None:
    for arguments in block.commands():
        if arguments[0] not in ("test", "container", "--install-completion"):
            parse(arguments)


def parse(arguments: list[str]) -> None:
    """Parse a command line without running it. Raises UsageError of the command line's library, or KeyError."""
    command: Any = typer.main.get_command(app)
    name = "orchestrator"
    while hasattr(command, "commands"):
        name, *arguments = arguments
        command = command.commands[name]
    command.make_context(name, arguments)


def test_every_comment_before_a_block_is_one_that_tests_know() -> None:
    assert [str(block) for block in all_blocks() if not _MARK.fullmatch(block.mark)] == []
    assert all(example.commands() for mark in (WITHOUT_GUEST, WITH_GUEST) for example in examples(mark))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = page.read_text()
    for block in blocks(page):
        text = text.replace(block.text, "")
    for link in _LINK.findall(text):
        if link.startswith("https://"):
            continue
        target, _, anchor = link.partition("#")
        file = page.parent / target if target else page
        assert file.exists(), link
        if anchor:
            assert anchor in anchors(file), link


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(page.read_text())
    }


def test_every_page_is_in_the_index() -> None:
    folder = ROOT / "docs"
    linked = set(_LINK.findall((folder / "README.md").read_text()))
    pages = {str(page.relative_to(folder)) for page in PAGES if page.name != "README.md"}
    assert "reference/commands.md" in pages
    assert pages <= linked


# --- the blocks themselves ------------------------------------------------------------------------

_PAGE = """\
# A page

<!-- runnable -->
```sh
./lab list cpus           # comment
./lab run 'a b.yaml' \\
    --dry-run | less
```

<!-- output -->
```text
one
two
...
```

```yaml
name: x
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_text(_PAGE)
    return path


def test_blocks_are_found(page: Path) -> None:
    first, second, third = blocks(page)
    assert (first.line, first.language, first.mark) == (5, "sh", "runnable")
    assert first.commands() == [["list", "cpus"], ["run", "a b.yaml", "--dry-run"]]
    assert (second.mark, second.text) == ("output", "one\ntwo\n...\n")
    assert (third.mark, third.text) == ("", "name: x\n")


def test_output_is_compared(page: Path) -> None:
    runnable, output, _ = blocks(page)
    check_output(Example(runnable, output.text), "one  \ntwo\nthree\n")
    with pytest.raises(AssertionError):
        check_output(Example(runnable, output.text), "one\n")
    with pytest.raises(AssertionError):
        check_output(Example(runnable, "one\ntwo\n"), "one\ntwo\nthree\n")


# Does ``history`` print what docs/history.md shows, of the runs that it describes?

SHOWN = "quickstart:pentium4"


def test_the_page_shows_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    days = [counted(1034.0)] * 20 + [counted(1048.0)] * 5 + [broken()] + [counted(1048.0)] * 15
    with patch("orchestrator.results.store.secrets") as chance:
        chance.token_hex.return_value = "1f3a"
        store_days(tmp_path, days, {20: "6.1.176-1"})
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("orchestrator.program.PROGRAM", "./lab")  # as the page calls it
    printed = CliRunner().invoke(app, ["history", "quickstart:kprobe"]).stdout
    (shown,) = [block.text for block in blocks(ROOT / "docs" / "history.md") if block.text.startswith(SHOWN)]
    assert printed.splitlines() == shown.splitlines()
