# SPDX-License-Identifier: GPL-2.0-only
"""Is whatever stands in an option used as what it is, or refused in a sentence, with nothing done?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hostile_texts import HOSTILE, hostile_texts
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from orchestrator.cli.main import app
from orchestrator.paths import data_dir

QUICKSTART = str(data_dir("configs") / "quickstart.yaml")
X = "TEXT"
"""Where the text stands."""

COMMANDS = {
    "exec --kernel": ("exec", "--offline", f"--kernel={X}", "--", "true"),
    "exec --cpu": ("exec", "--offline", f"--cpu={X}", "--", "true"),
    "exec --memory": ("exec", "--offline", f"--memory={X}", "--", "true"),
    "exec --image": ("exec", "--offline", f"--image={X}", "--", "true"),
    "exec --image, a path": ("exec", "--offline", f"--image=./{X}", "--", "true"),
    "exec --data": ("exec", "--offline", f"--data={X}", "--", "true"),
    "exec --module": ("exec", "--offline", f"--module={X}", "--", "true"),
    "exec --module, a path": ("exec", "--offline", f"--module=./{X}.c.j2", "--", "true"),
    "exec --param": ("exec", "--offline", "--module=mine.c.j2", f"--param={X}", "--", "true"),
    "exec --param, a value": ("exec", "--offline", "--module=mine.c.j2", f"--param=a={X}", "--", "true"),
    "exec --set": ("exec", "--offline", "--module=mine.c.j2", f"--set=a={X}", "--", "true"),
    "exec --channel": ("exec", "--offline", f"--channel={X}", "--", "true"),
    "exec --user": ("exec", "--offline", "--channel=serial", f"--user={X}", "--", "true"),
    "exec --password-file": ("exec", "--offline", "--channel=serial", f"--password-file={X}", "--", "true"),
    "exec --allow-oops": ("exec", "--offline", f"--allow-oops={X}", "--", "true"),
    "run": ("run", "--dry-run", "--", X),
    "run --set": ("run", "--dry-run", QUICKSTART, f"--set={X}"),
    "run --set, a value": ("run", "--dry-run", QUICKSTART, f"--set=benchmark.calls={X}"),
    "run --only": ("run", "--dry-run", QUICKSTART, f"--only={X}"),
    "report": ("report", "--", X),
    "compare": ("compare", "--", X, "latest"),
    "kmod render": ("kmod", "render", "--", X),
    "kmod render --symbol": ("kmod", "render", "kprobe", f"--symbol={X}"),
    "kmod render --offset": ("kmod", "render", "kprobe", f"--offset={X}"),
    "kernel build": ("kernel", "build", "--offline", "--", X),
    "image build": ("image", "build", "--offline", "--", X),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands are called, with a cache and a lab beside it."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "here").mkdir()
    (folder / "here/mine.c.j2").write_text("int a = {{ a }};\n")
    return folder


@given(st.sampled_from(sorted(COMMANDS)), hostile_texts)
@example("exec --image, a path", "\udcff")
@example("exec --kernel", "./\udcff")
@example("run", "\udcff.yaml")
def test_an_option_is_used_as_it_is_or_refused(folder: Path, command: str, text: str) -> None:
    check(folder, command, text)


@pytest.mark.nightly("each hostile text in each option: three minutes")
@pytest.mark.parametrize("command", COMMANDS)
def test_each_hostile_text_in_each_option(folder: Path, command: str) -> None:
    for text in HOSTILE:
        check(folder, command, text)


def check(folder: Path, command: str, text: str) -> None:
    words = [word.replace(X, text.replace("\0", "")) for word in COMMANDS[command]]  # no program is given a NUL
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder / "here")
        patch.setenv("ORCHESTRATOR_CACHE", str(folder / "cache"))
        patch.setenv("ORCHESTRATOR_LAB", str(folder / "lab"))
        result = CliRunner().invoke(app, words)
    assert result.exception is None or isinstance(result.exception, SystemExit), (words, result.exc_info)
    assert result.exit_code in (0, 1, 2, 3)
    assert "Traceback" not in result.stderr
    assert bool(result.exit_code) == bool(result.stderr), result.output
    assert [file.name for file in (folder / "here").iterdir()] == ["mine.c.j2"]
    assert {file.name for file in folder.iterdir()} <= {"here", "cache", "lab"}
