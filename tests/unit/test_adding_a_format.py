# SPDX-License-Identifier: GPL-2.0-only
"""Is the format of docs/adding-a-format.md, which the package has never seen, offered and printed like its own?"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType

import pytest
from command_line import CommandLine
from documentation import ROOT
from record_builders import cell, failed
from stored_profiles import store_run

from orchestrator.late_import import loaded
from orchestrator.library import formats
from orchestrator.library.formats import FORMATS, Format, Formats

PAGE = (ROOT / "docs" / "adding-a-format.md").read_text()
WRITER, ENTRY = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
(PRINTED,) = re.findall(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def prometheus(monkeypatch: pytest.MonkeyPatch) -> Format:
    """The page's format, in the registry for the time of a test."""
    module = ModuleType("orchestrator.report.prometheus")
    exec(compile(WRITER, module.__name__, "exec"), vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    added: Format = eval(ENTRY, {"Format": Format})
    monkeypatch.setattr(formats, "FORMATS", [*FORMATS, added])
    return added


def test_the_page_s_format_prints_a_run(prometheus: Format, tmp_path: Path) -> None:
    store_run(tmp_path / "lab", tmp_path / "run", cell("none"), cell("kprobe"), failed("djprobe", "it hangs"))
    done = CommandLine(tmp_path / "lab").run("report", tmp_path / "run", "--format", prometheus.name)
    assert done.stdout == PRINTED
    assert not done.stderr


def test_the_page_s_format_is_offered_and_refused_like_others(prometheus: Format, tmp_path: Path) -> None:
    assert Formats("run").help.endswith("; prometheus: for the node exporter.")
    assert "prometheus" not in Formats("comparison").names
    command_line = CommandLine(tmp_path)
    done = command_line.refused("report", "--format", "prometheuss")
    assert "html, prometheus; did you mean 'prometheus'?" in done.stderr
    done = command_line.refused("run", "one.yaml", "two.yaml", "--format", "prometheus")
    assert "prometheus is a document on one run" in done.stderr
    done = command_line.refused("report", "--clock", "modelled", "--format", "prometheus")
    assert "prometheus has measured figures only" in done.stderr


@pytest.mark.parametrize(
    "writer", [pytest.param(writer, id=f"{form}-{kind}") for form in FORMATS for kind, writer in form.writers.items()]
)
def test_each_format_s_writers_are_there(writer: str) -> None:
    assert callable(loaded(writer))


def test_no_two_formats_share_a_name_and_each_kind_of_result_has_a_default_for_people() -> None:
    assert len({form.name for form in FORMATS}) == len(FORMATS)
    kinds = dict.fromkeys(kind for form in FORMATS for kind in form.writers)
    assert all(Formats(kind).default.name in ("table", "text") for kind in kinds)
