# SPDX-License-Identifier: GPL-2.0-only
"""Do the commands of the README and of docs/ that boot a guest do what the page shows?"""

from __future__ import annotations

import itertools
import re
import subprocess
from pathlib import Path

import pytest
from command_line import CommandLine
from documentation import WITH_GUEST, Example, check_output, examples, write_files

pytestmark = pytest.mark.qemu

_RELEASE = re.compile(r"linux-[0-9]\S*-686\b")


PROFILED = pytest.mark.nightly("profiles each probe of the quickstart: three seconds")
EXAMPLES = [
    pytest.param(
        example, marks=[PROFILED] if "--profile" in itertools.chain(*example.commands()) else [], id=str(example)
    )
    for example in examples(WITH_GUEST)
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_a_command_does_what_the_page_shows(example: Example, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(example.block.page, tmp_path)
    monkeypatch.chdir(tmp_path)
    command_line = CommandLine(tmp_path / "lab")
    printed = ""
    for command in example.commands():
        done: subprocess.CompletedProcess[str] = command_line.run(*command)
        assert done.returncode == 0, done.stderr
        printed += done.stdout
    release = _RELEASE.search(example.output or "")
    if release is not None and release[0] not in printed:
        pytest.skip(f"the page shows {release[0]}, and this guest runs another kernel")
    check_output(example, printed)
