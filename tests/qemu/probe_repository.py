# SPDX-License-Identifier: GPL-2.0-only
"""A repository with a probe of one's own, whose handler does more from one commit on."""

from __future__ import annotations

import subprocess
from pathlib import Path

from orchestrator.paths import data_dir

KERNEL = "lab-i386-up"
EXPERIMENT = f"""\
name: own
kernels: [{KERNEL}]
machines: [{{cpu: pentium4}}]
probes: [none, ./own.c.j2]
benchmark: {{name: gtodbench, calls: 100, repeats: 2}}
"""
_NOPS = '\tasm volatile("{}");\n'
_TEN = _NOPS.format("; ".join(["nop"] * 10))
_HISTORY = {
    "add a probe": "",
    "say that it does nothing": "\t/* nothing */\n",
    "do one thing": _NOPS.format("nop"),
    "do ten things": _TEN,
    "say how many": _TEN + "\t/* ten */\n",
    "break the build": "\tthis is no C\n",
    "mend the build": _TEN + "\t/* still ten */\n",
}
_HANDLER = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"


def git(folder: Path, *arguments: str) -> str:
    """What git prints, by an author of this test's own."""
    named = ("-c", "user.name=A Person", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    command = ["git", "-C", str(folder), *named, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def commit(top: Path, subject: str) -> None:
    """Commit all that is in the repository's folder."""
    git(top, "add", ".")
    git(top, "commit", "--quiet", "--message", subject)


def make_repository(top: Path) -> Path:
    """The lab's own kprobe and an experiment with it: ``HEAD~6`` does nothing, ``HEAD~1`` does not build."""
    top.mkdir()
    git(top, "init", "--quiet")
    source = (data_dir("kmods") / "templates" / "kprobe.c.j2").read_text()
    assert _HANDLER in source
    (top / "own.c.j2").write_text('#include "work.h"\n' + source.replace(_HANDLER, f"{_HANDLER}\twork();\n"))
    (top / "own.yaml").write_text(EXPERIMENT)
    for subject, body in _HISTORY.items():
        (top / "work.h").write_text(f"static inline void work(void)\n{{\n{body}}}\n")
        commit(top, subject)
    return top
