# SPDX-License-Identifier: GPL-2.0-only
"""Does a history show the run from which on a probe of one's own costs more, by how much, and what was changed?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from probe_repository import EXPERIMENT, KERNEL

from orchestrator.paths import data_dir

pytestmark = [pytest.mark.qemu, pytest.mark.kernels(KERNEL)]

HANDLER = "static int kprobe_func(struct kprobe *kp, struct pt_regs *regs)\n{\n"
TEN_NOPS = '\tasm volatile(".rept 10; nop; .endr");\n'


def test_a_changed_handler_is_a_step_of_its_own_instructions(tmp_path: Path) -> None:
    source = (data_dir("kmods") / "templates" / "kprobe.c.j2").read_text()
    assert HANDLER in source
    template, experiment = tmp_path / "own.c.j2", tmp_path / "own.yaml"
    experiment.write_text(EXPERIMENT)
    command = CommandLine(tmp_path / "lab")
    for text in (source, source.replace(HANDLER, HANDLER + TEN_NOPS)):
        template.write_text(text)
        measured = command.run("run", experiment)
        assert measured.returncode == 0, measured.stderr

    shown = command.run("history", "own:own.c.j2", "--format", "json")
    assert shown.returncode == 0, shown.stderr
    (history,) = json.loads(shown.stdout)["histories"]
    first, second = history["points"]
    (step,) = history["steps"]
    assert (step["before"], step["after"]) == (first["run"], second["run"])
    assert step["change"] == 10
    (cause,) = step["causes"]
    assert cause["what"] == "probe own.c.j2"
    assert "own" in cause["sentence"]

    printed = command.run("history", "own:own.c.j2").stdout
    assert cause["sentence"] in printed
    assert f"orchestrator compare {first['run']} {second['run']}" in printed
    # The baseline has not changed.
    lately = command.run("history").stdout
    assert "own:pentium4/lab-i386-up/own.c.j2/noop" in lately
    assert "/none" not in lately
