# SPDX-License-Identifier: GPL-2.0-only
"""Does ``compare`` print what docs/comparing.md shows?"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import CommandLine
from documentation import ROOT, blocks

KERNEL = "lab-i386-up"
HANDLER = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"
NOPS = '\tasm volatile("nop; nop; nop");\n'
EXPERIMENT = f"""\
name: own
kernels: [{KERNEL}]
machines: [{{cpu: pentium4}}]
probes: [none, ./own.c.j2]
benchmark: {{name: gtodbench, calls: 1000, repeats: 2}}
profile: [symbols]
"""
_RUN = re.compile(r"\b[0-9]{8}-[0-9]{6}-own-[0-9a-f]{4}\b")

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]


def test_the_example_of_the_page(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "comparing.md")
    shown = next(block.text for block in page if block.language == "text")
    first, second, last = next(block.commands() for block in page if block.language == "sh")
    command, experiment = CommandLine(tmp_path / "lab"), tmp_path / "own.yaml"
    template = (ROOT / "kmods" / "templates" / "kprobe.c.j2").read_text()
    assert HANDLER in template
    (tmp_path / "own.c.j2").write_text('#include "work.h"\n' + template.replace(HANDLER, f"{HANDLER}\twork();\n"))
    experiment.write_text(EXPERIMENT)
    (tmp_path / "work.h").write_text("static inline void work(void)\n{\n}\n")
    assert command.run("run", experiment).returncode == 0
    assert command.run(*first).returncode == 0
    (tmp_path / "work.h").write_text(f"static inline void work(void)\n{{\n{NOPS}}}\n")
    assert second == ["run", "own.yaml"]
    assert command.run("run", experiment).returncode == 0
    compared = command.run(*last)
    assert compared.returncode == 1, compared.stderr
    expected = _RUN.sub("RUN", shown).splitlines()
    printed = [line.rstrip() for line in _RUN.sub("RUN", compared.stdout).splitlines()]
    assert printed[: len(expected)] == expected
    assert not any(printed[len(expected) :])
