# SPDX-License-Identifier: GPL-2.0-only
"""Does a commit that is wrong get the message of ``golden/wrong``, and is the user's repository left as it was?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from golden_messages import check_messages

WHEN = "2026-03-01T12:00:00Z"


def git(folder: Path, *arguments: str) -> str:
    settings = {"user.name": "A Person", "user.email": "a@example.org", "init.defaultBranch": "main"}
    options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
    environment = {**os.environ, "GIT_AUTHOR_DATE": WHEN, "GIT_COMMITTER_DATE": WHEN}
    command = ["git", "-C", str(folder), *options, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout


def repository(folder: Path, *versions: str) -> Path:
    """A repository whose commits are tagged with these versions of ``own.c``."""
    folder.mkdir()
    git(folder, "init", "--quiet")
    for version in versions:
        (folder / "own.c").write_text(f"/* {version} */\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", f"Have {version}")
        git(folder, "tag", version)
    return folder


def test_messages_are_as_in_the_golden_file(tmp_path: Path) -> None:
    probes = repository(tmp_path / "probes", "v1", "v2")
    git(probes, "branch", "topic")
    repository(tmp_path / "other", "v1")
    repository(tmp_path / "empty")
    before = git(probes, "for-each-ref"), git(probes, "status", "--porcelain")
    check_messages("tree-at-rev", tmp_path)
    assert (git(probes, "for-each-ref"), git(probes, "status", "--porcelain")) == before
