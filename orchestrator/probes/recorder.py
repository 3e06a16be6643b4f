# SPDX-License-Identifier: GPL-2.0-only
"""A module that records the standard kernel events by one mechanism: rendered, loaded, read, stopped."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from orchestrator.artifacts.kernel_code import KernelCode
from orchestrator.artifacts.kernels import Kernel
from orchestrator.artifacts.module_source import Value
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.events import standard_events
from orchestrator.catalog.kernel_options import without_option
from orchestrator.catalog.kernels import Arch
from orchestrator.catalog.recorders import RecorderName
from orchestrator.catalog.spelling import unknown
from orchestrator.errors import CommandFailed, EvidenceError, GuestError, LabError, UsageError
from orchestrator.guest.guest import Guest
from orchestrator.probes.loading import load
from orchestrator.probes.recorder_report import RecorderReport, parse_report

Mechanism = RecorderName
MECHANISMS: Sequence[Mechanism] = get_args(Mechanism)
TEMPLATE = "recorder"
MODULE = "lab_recorder"

REPORT = f"/sys/kernel/debug/{MODULE}/report"
STOP = f"/sys/module/{MODULE}/parameters/stop"
"""In the guest: the report of a loaded recorder, and the file that stops it when a 1 is written to it."""
_OPTIMISATION = "/proc/sys/debug/kprobes-optimization"
_LIMIT = 600.0
"""Host seconds: a djprobe goes in and out in a tenth of a second, in a guest that is busy or preemptible in seconds."""

_NEEDS: Mapping[Mechanism, Sequence[str]] = {
    "marker": ("CONFIG_LAB_MARKERS", "CONFIG_DEBUG_FS"),
    "djprobe": ("CONFIG_KPROBES", "CONFIG_DEBUG_FS"),
    "kprobe": ("CONFIG_KPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "kprobe-boosted": ("CONFIG_KPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "kprobe-optimized": ("CONFIG_OPTPROBES", "CONFIG_KALLSYMS_ALL", "CONFIG_DEBUG_FS"),
    "jprobe": ("CONFIG_KPROBES", "CONFIG_DEBUG_FS"),
}


def recorder_values(
    mechanism: Mechanism, arch: Arch, events: Sequence[str] | None = None, code: KernelCode | None = None
) -> dict[str, Value]:
    """What to render the template ``recorder`` with, for these standard events (all of them when None).

    Where the kernel's ``code`` is not at hand, functions have their names of today.
    Raises UsageError for an unknown mechanism or event, or for an event that is named twice.
    """
    if mechanism not in MECHANISMS:
        raise UsageError(unknown("mechanism", mechanism, MECHANISMS))
    catalogue = standard_events()
    names = list(catalogue) if events is None else list(events)
    for name in names:
        if name not in catalogue:
            raise UsageError(unknown("event", name, catalogue))
    if not names or len(set(names)) != len(names):
        raise UsageError("a recorder has one event at least, and each once")
    chosen = [catalogue[name] for name in names]
    if mechanism == "marker":
        calls = []
        others = [(number, event.marker) for number, event in enumerate(chosen)]
    else:
        calls = [(number, symbol) for number, event in enumerate(chosen) for symbol in event.call_functions(arch)]
        functions = [event.function(lambda name: code is None or code.has_function(name)) for event in chosen]
        others = [(number, symbol) for number, symbol in enumerate(functions) if symbol is not None]
    return {
        "mechanism": mechanism.replace("-", "_"),
        "events": tuple(names),
        "calls": len(calls),
        "symbols": tuple(symbol for _, symbol in [*calls, *others]),
        "events_of": tuple(number for number, _ in [*calls, *others]),
    }


def unsupported_reason(kernel: Kernel, mechanism: Mechanism) -> str | None:
    """Why this kernel cannot have a recorder of this mechanism, by its own configuration; None when it can."""
    for option in _NEEDS[mechanism]:
        if kernel.config.get(option) != "y":
            return without_option(option, _NEEDS[mechanism], kernel.spec.arch)
    if mechanism == "kprobe-boosted" and kernel.config.get("CONFIG_PREEMPTION") == "y":
        return "this kernel is preemptible, and such a kernel boosts no kprobe"
    return None


class Recorder:
    """A loaded recorder. Made by ``recording``."""

    def __init__(self, guest: Guest) -> None:
        self._guest = guest

    def report(self) -> RecorderReport:
        """What it has recorded so far. Raises EvidenceError for anything but a whole report."""
        return parse_report(self._guest.get(REPORT))

    def stop(self) -> RecorderReport:
        """Take everything out, once; what it recorded is final then.

        Places are removed one after the other: to compare events with each other, read the report before.
        Raises EvidenceError where any original byte is not back.
        """
        self._guest.put(b"1", STOP, time_limit=_LIMIT)
        report = self.report()
        if report.recording:
            raise EvidenceError("the recorder still records after it was stopped")
        if not report.restored:
            wrong = [f"{site.symbol} at {site.address:#x}" for site in report.sites if site.live != site.original]
            raise EvidenceError("the kernel's original bytes are not back after recording", detail=wrong[:10])
        return report


@contextlib.contextmanager
def recording(guest: Guest, mechanism: Mechanism, module: Module) -> Iterator[Recorder]:
    """Load a recorder, which records from then on; stop and unload it at the end.

    Raises EvidenceError when the module is refused (with its own reason from the kernel's log), when it is another
    mechanism's, or when the original bytes are not back.
    """
    guest.put(b"1" if mechanism == "kprobe-optimized" else b"0", _OPTIMISATION)
    load(guest, module.name, module.file, time_limit=_LIMIT)
    recorder = Recorder(guest)
    try:
        report = recorder.report()
        if report.mechanism != mechanism:
            raise EvidenceError(f"the recorder's mechanism is {report.mechanism}, not {mechanism}")
        yield recorder
        recorder.stop()
    except LabError as error:
        # The first error is the one to report. A guest in trouble gets no commands.
        if not isinstance(error, GuestError):
            with contextlib.suppress(CommandFailed):
                _unload(guest, module)
        raise
    _unload(guest, module)


def _unload(guest: Guest, module: Module) -> None:
    guest.succeed(["rmmod", module.name], time_limit=_LIMIT)
