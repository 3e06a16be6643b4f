# SPDX-License-Identifier: GPL-2.0-only
"""The machine every guest gets: QEMU's options and the kernel's parameters that do not depend on the experiment."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class ClockSettings(Fact):
    """What a clock adds: QEMU's arguments and kernel parameters."""

    qemu: list[str]
    kernel_parameters: list[str]


class MachineFacts(Fact):
    """QEMU's machine type and fixed options, the kernel's parameters, and what the exact clock adds."""

    type: str
    options: list[str]
    kernel_parameters: list[str]
    instructions: ClockSettings


@lru_cache(maxsize=1)
def machine_facts() -> MachineFacts:
    """Return the facts of ``machine.yaml``."""
    return MachineFacts.model_validate(read("machine.yaml"))
