# SPDX-License-Identifier: GPL-2.0-only
"""The machine every guest gets: QEMU's options and the kernel's parameters that do not depend on the experiment."""

from __future__ import annotations

from functools import lru_cache

from orchestrator.catalog.data import Fact, read


class Settings(Fact):
    """QEMU arguments and kernel parameters that a clock or a way of starting adds."""

    qemu: list[str]
    kernel_parameters: list[str]


class MachineFacts(Fact):
    """QEMU's machine type and fixed options, the kernel's parameters, and the settings of clocks and ways to start."""

    type: str
    options: list[str]
    kernel_parameters: list[str]
    smp_kernel_on_one_cpu: list[str]
    own_init: list[str]
    own_init_without_login: list[str]
    standard: Settings
    quick: Settings
    host_time: Settings
    instructions: Settings
    recorded: Settings
    stopping: list[str]


@lru_cache(maxsize=1)
def machine_facts() -> MachineFacts:
    """Return the facts of ``machine.yaml``."""
    return MachineFacts.model_validate(read("machine.yaml"))
