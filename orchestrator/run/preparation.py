# SPDX-License-Identifier: GPL-2.0-only
"""What came of preparing a cell: ready, not supported by its kernel, or failed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.modules import Module
from orchestrator.errors import BuildError
from orchestrator.results.contract import Status

SetupT = TypeVar("SetupT", covariant=True)


@dataclass(frozen=True)
class Ready(Generic[SetupT]):
    """The cell can be measured: its kind's own ``setup``, the modules that go into the guest, notes for the reader."""

    setup: SetupT
    modules: tuple[Module, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Refused:
    """The cell has no number, and ``reason`` says why: its kernel cannot have it, or it did not build."""

    status: Status
    reason: str
    modules: tuple[Module, ...] = ()


Prepared = Ready[SetupT] | Refused


def unsupported(reason: str) -> Refused:
    """The kernel, by its own configuration, cannot have the cell."""
    return Refused("unsupported", reason)


def failed(error: BuildError) -> Refused:
    """Something of the cell's did not build."""
    return Refused("failed", str(error))


def smp_note(kernel: Kernel, cpus: int) -> tuple[str, ...]:
    """The note of an SMP kernel on one virtual CPU; none of any other."""
    if not kernel.smp or cpus != 1:
        return ()
    return ("an SMP kernel on one virtual CPU, its lock prefixes kept (noreplace-smp)",)


def compiler_note(kernel: Kernel, module: Module | None) -> tuple[str, ...]:
    """The note of a module that was compiled here by another compiler than its kernel; none of any other."""
    compiled = module is not None and module.sources is not None
    return (kernel.compiler_note,) if compiled and kernel.compiler_note is not None else ()
