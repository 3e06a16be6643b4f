# SPDX-License-Identifier: GPL-2.0-only
"""Do the example of docs/library.md and the notebook run, in real guests?"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from command_line import PATIENCE, QUICKSTART
from documentation import ROOT, blocks
from nbclient import NotebookClient
from probe_repository import KERNEL, make_repository

pytestmark = pytest.mark.qemu

NOTEBOOK = ROOT / "docs" / "library.ipynb"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCHESTRATOR_LAB", str(tmp_path / "lab"))
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "MPLCONFIGDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.chdir(tmp_path)


@pytest.mark.kernels(KERNEL)
def test_the_page_s_example_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs" / "library.md"
    program = "\n".join(block.text for block in blocks(page) if block.language == "python")
    names: dict[str, Any] = {
        "QUICKSTART": QUICKSTART,
        "TREE": make_repository(tmp_path / "tree"),
        "__name__": "example",
    }
    exec(compile(program, str(page), "exec"), names)
    printed = capsys.readouterr().out
    cells = {cell.probe: cell for cell in names["run"].record.cells}
    assert [cell.status for cell in cells.values()] == ["ok"] * 3
    assert f"kprobe ok {cells['kprobe'].value} {cells['kprobe'].overhead} instructions" in printed
    # Its baseline is measured, too.
    (counted,) = (cell for cell in names["handlers"].record.cells if cell.probe == "kprobe")
    assert f"{counted.id}: {counted.value}\n" in printed
    assert "['handlers', 'quickstart']" in printed
    assert f"improved {cells['kprobe'].value} {cells['djprobe'].value}" in printed
    assert "probe: none, kprobe" in printed
    assert "do one thing []\ndo ten things ['pentium4/lab-i386-up/own.c.j2" in printed
    assert "do ten things ['kprobe_func" in printed
    assert re.search(r"^kprobe \d+\.0 [\[(].*allowed", printed, re.MULTILINE)


def test_the_notebook_shows_a_table_and_a_chart() -> None:
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.outputs for cell in code] == [[]] * len(code)  # results are not kept in the repository
    NotebookClient(notebook, timeout=int(PATIENCE), kernel_name="python3").execute()
    table, chart, compared, guest = ([output.get("data", {}) for output in cell.outputs] for cell in code[1:])
    assert "<table" in table[-1]["text/html"]
    assert [name for name in ("none", "kprobe", "jprobe", "djprobe") if name not in table[-1]["text/plain"]] == []
    assert len(chart[-1]["image/png"]) > 4000
    assert "improved" in compared[-1]["text/plain"]
    assert "-686" in guest[-1]["text/plain"]
