# SPDX-License-Identifier: GPL-2.0-only
"""Boot the target of labgrid.yaml and run `true` in it. Labgrid's own Python runs this."""

from __future__ import annotations

from pathlib import Path

from labgrid import Environment

target = Environment(str(Path(__file__).with_name("labgrid.yaml"))).get_target("main")
machine = target.get_driver("QEMUDriver")
machine.on()
target.get_driver("ShellDriver").run_check("true")
machine.off()
