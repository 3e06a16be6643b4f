# SPDX-License-Identifier: GPL-2.0-only
"""Is a pull request held against its base, whatever it adds, and never passed without a number?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from probe_repository import commit, git

pytestmark = pytest.mark.qemu

HEAD = """\
// SPDX-License-Identifier: GPL-2.0-only
#include "vmlinux.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";
"""


def programs(**functions: str) -> str:
    """A source with a program of each name at a function."""
    return HEAD + "".join(
        f'\nSEC("fentry/{function}")\nint BPF_PROG({name})\n{{\n\treturn 0;\n}}\n'
        for name, function in functions.items()
    )


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """``main`` has a program; ``HEAD`` has one more, and a new file."""
    top = tmp_path / "repo"
    top.mkdir()
    git(top, "init", "--quiet")
    (top / "watch.bpf.c").write_text(programs(on_read="vfs_read").replace("return 0", "return no_such_thing"))
    commit(top, "Watch reads, and do not build")
    git(top, "tag", "broken")
    (top / "watch.bpf.c").write_text(programs(on_read="vfs_read"))
    commit(top, "Watch reads")
    git(top, "checkout", "--quiet", "-b", "topic")
    (top / "watch.bpf.c").write_text(programs(on_read="vfs_read", also="vfs_read"))
    (top / "fresh.bpf.c").write_text(programs(fresh="vfs_read"))
    commit(top, "Watch reads twice, and in a new file")
    return top


def held(command: CommandLine, top: Path, *words: str, status: int) -> dict[str, Any]:
    files = [str(top / word) if word.endswith(".bpf.c") else word for word in words]
    done = command.run("cost", *files, "--format", "json")
    assert done.returncode == status, done.stderr
    assert "orchestrator-cost-" not in done.stderr  # a file that the user has not written
    found: dict[str, Any] = json.loads(done.stdout)
    assert found["passes"] is (status == 0)
    return found


def test_what_a_commit_adds_is_new_and_a_base_without_a_number_is_no_pass(tree: Path, tmp_path: Path) -> None:
    command = CommandLine(tmp_path / "lab")
    found = held(command, tree, "watch.bpf.c", "fresh.bpf.c", "--against", "main", status=0)
    assert {one["program"]: (one["change"], one["new"]) for one in found["costs"]} == {
        "on_read": (0, None),
        "also": (None, f"main has no also of {tree}/watch.bpf.c"),
        "fresh": (None, f"main has no {tree}/fresh.bpf.c"),
    }
    assert found["verdict"] == "3 costs measured, none exceeds what is allowed; 2 new."
    alone = held(command, tree, f"{tree}/watch.bpf.c program=also", "--against", "main", status=0)
    assert [cost["new"] for cost in alone["costs"]] == [f"main has no also of {tree}/watch.bpf.c"]
    # The base does not build: what is there is measured all the same.
    subject = f"{tree / 'watch.bpf.c'} program=on_read"
    unknown = held(command, tree, subject, "--against", "broken", status=1)
    (cost,) = unknown["costs"]
    assert cost["instructions"] == 129
    assert cost["unknown"].startswith("broken could not be measured: watch.bpf.c:")
    assert unknown["verdict"] == "1 of 1 cost could not be compared."
