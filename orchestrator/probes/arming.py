# SPDX-License-Identifier: GPL-2.0-only
"""Arming a probe in a guest, by its kind's artifact; the lab's modules are armed here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import get_args

from orchestrator.artifacts.bpf_objects import BpfObject
from orchestrator.artifacts.modules import Module
from orchestrator.catalog.probes import Extra, Handler, ProbeKind, is_recording
from orchestrator.errors import EvidenceError, GuestError, UnsupportedError
from orchestrator.guest.channel import COMMAND_LIMIT
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes import attachment, evidence, final_form
from orchestrator.probes.events import check_events, read_events, write_csv
from orchestrator.probes.evidence import MISSED_RETURNS, Observation
from orchestrator.probes.loading import load
from orchestrator.probes.point import ProbePoint, find_hook, find_static_branch
from orchestrator.probes.symbols import ModuleMemory, Symbols
from orchestrator.probes.traced_functions import Traced
from orchestrator.results.parameters import LISTED, PROBE_BYTES_EXTRA, PROBE_BYTES_PLAIN

_NUMBER = re.compile(r"(\d{1,20})")
_ADDRESS = re.compile(r"(?:0x)?([0-9a-f]{1,16})")
_COUNTS = re.compile(r"(\d{1,20}) (\d{1,20}) (\d{1,20})")
_MEMORY = re.compile(r"(\d{1,6}) (\d{1,6})")
_DETOUR = re.compile(r"([0-9a-f]{1,16}) (\d{1,6})")
_TRIAL_LIMIT = 1800.0
"""Seconds for a module to try its places; a minute was too short beside twenty busy processes."""
_PLACES = re.compile(r"(\d{1,6}) of (\d{1,6})")
_SAMPLE = re.compile(r"(\d{1,6}) of (\d{1,6}) in (\d{1,6})")


class Parameters:
    """The parameters of a loaded module, by its name."""

    def __init__(self, guest: Guest, module: str) -> None:
        self._guest, self._folder = guest, f"/sys/module/{module}/parameters"

    def names(self) -> Sequence[str]:
        return self._guest.run(["ls", self._folder]).text.split()

    def file(self, name: str) -> str:
        return f"{self._folder}/{name}"

    def put(self, name: str, value: str) -> None:
        self._guest.put(value.encode(), self.file(name))

    def read(self, name: str, *, time_limit: float = COMMAND_LIMIT) -> str:
        return kernel_value(self._guest, self.file(name), time_limit=time_limit)

    def found(self, name: str, pattern: re.Pattern[str], *, time_limit: float = COMMAND_LIMIT) -> Sequence[str]:
        """The groups of a ``pattern`` in a parameter's value. Raises EvidenceError if it does not match."""
        text = self.read(name, time_limit=time_limit)
        match = pattern.fullmatch(text)
        if match is None:
            raise EvidenceError(f"the module reports {name}={text[:40]!r}")
        return match.groups()

    def numbers(self, name: str, pattern: re.Pattern[str] = _NUMBER, *, time_limit: float = COMMAND_LIMIT) -> list[int]:
        return [int(number) for number in self.found(name, pattern, time_limit=time_limit)]

    def address(self) -> int:
        return int(self.found("address", _ADDRESS)[0], 16)


class ModuleAttachment(attachment.Attachment):
    """A loaded probe module. Made by ``module_attached``."""

    def __init__(self, guest: Guest, kind: ProbeKind, module: Module, point: ProbePoint, symbols: Symbols) -> None:
        self._guest, self._kind, self._symbols = guest, kind, symbols
        self.module_name = module.name
        self.point = point
        self._before = 0
        self._handler: Handler | None = None
        self._has_stacks = False
        self._called: dict[tuple[bytes, Traced], str] = {}
        self._parameters = Parameters(guest, module.name)
        # The lab's own modules have all parameters. Those of a user's without hits may have the same names by chance.
        shown = () if kind.file is None else self._parameters.names()
        self._shown = shown if "hits" in shown else ()
        self.parameter = self._parameters.read
        if not self._has("hits") and guest.machine.counts_code:
            self.entered_module = module.name

    @contextmanager
    def separate_caller(self) -> Iterator[str | None]:
        """Yields the module's parameter file. None if a user's module lacks it: all hits are then counted together."""
        if not self._has("caller"):
            yield None
            return
        self._parameters.put("caller", "-1")
        yield self._parameters.file("caller")
        self._parameters.put("caller", "0")

    def set_handler(self, handler: Handler) -> None:
        """Choose what a hit does; the registration stays as it is.

        A user's module without handlers always does the same, and counting continues. Raises UnsupportedError for a
        module that does not record.
        """
        if self._has("handler"):
            # Choosing "count" or "record" again resets the counters, so only a repeated "noop" may be skipped.
            if (handler, self._handler) != ("noop", "noop"):
                try:
                    self._parameters.put("handler", handler)
                except GuestError as error:
                    # select_handler() of kmods/lib/report.h returns this if the module has no such handler.
                    if is_recording(handler) and error.what.endswith(": operation not supported"):
                        what = "handler that traces the stack" if handler == "stack" else "recording handler"
                        raise UnsupportedError(f"{self._kind.name} has no {what}") from None
                    raise
            self._handler = handler
            self._has_stacks = handler == "stack" or (handler == "noop" and self._has_stacks)
        elif is_recording(handler):
            raise UnsupportedError(f"module {self.module_name} has no parameter handler, so it cannot record")
        elif handler == "count":
            self._before = self._hits()

    def counts(self, called: attachment.Called) -> tuple[int, int | None]:
        """The module's own counts; all hits together for a user's module that cannot separate a caller."""
        if not self._has("counts"):
            return self.hits(), self._number("others") if self._has("others") else None
        hits, hits_of_others, missed = self._parameters.numbers("counts", _COUNTS)
        self.check_missed(missed)
        return hits - self._before, hits_of_others

    def recorded(self, called: attachment.Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        self.check_missed()
        events = read_events(self._guest, self.module_name)
        write_csv(events, file)
        hits = check_events(events, self._kind, called, self.point, symbols, stacks=self._has_stacks)
        return hits, events.written - hits

    def hits(self) -> int:
        self.check_missed()
        return self._hits() - self._before

    def check_missed(self, known: int | None = None) -> None:
        missed = self._number("missed") if known is None and self._has("missed") else known
        if missed:
            hint = MISSED_RETURNS if self._kind.template == "kretprobe" else ""
            raise EvidenceError(f"the kernel skipped the handler {missed} times", hint=hint)

    def _hits(self) -> int:
        if not self._has("hits"):
            raise EvidenceError(
                f"module {self.module_name} has no parameter hits: nothing proves that its probe was hit",
                hint='include "report.h", or give it a read-only parameter hits',
            )
        return self._number("hits")

    def _has(self, parameter: str) -> bool:
        return self._kind.file is None or parameter in self._shown

    def _number(self, name: str) -> int:
        return self._parameters.numbers(name)[0]

    def extras(self) -> Sequence[Extra]:
        return [] if self._kind.extras == "none" else [extra for extra in get_args(Extra) if self._number(extra)]

    def disable(self, extra: Extra) -> None:
        # Without its post-handler the kernel would optimise it.
        self._guest.put(b"0", final_form.OPTIMISATION)
        self._parameters.put(extra, "0")
        if self._number(extra):
            raise EvidenceError(f"the kernel's {extra} is still at {self.point.name}")

    def facts(self) -> Mapping[str, int | str]:
        """For a module that tries many places: the number probed in the function, and in a sample of functions.

        For one that does not count its hits: where the kernel lists probes. For a kprobe: its bytes, and those more if
        the kernel optimises it.
        """
        if self._kind.template in ("kprobe", "kretprobe"):
            plain, optimised = self._parameters.numbers("memory", _MEMORY)
            return {PROBE_BYTES_PLAIN: plain, PROBE_BYTES_EXTRA: optimised}
        if self.entered_module is not None:
            listed = evidence.listed_probes(self._guest)[:8]
            return {LISTED: ", ".join(listed)} if listed else {}
        if self._kind.capability != "anywhere":
            return {}
        places = self._parameters.numbers("places", _PLACES, time_limit=_TRIAL_LIMIT)
        sample = self._parameters.numbers("sample", _SAMPLE, time_limit=_TRIAL_LIMIT)
        names = ("places_taken", "places", "sampled_taken", "sampled", "sampled_functions")
        return dict(zip(names, (*places, *sample), strict=True))

    def observe(self) -> Observation:
        seen = _observe(self._guest, self._kind, self._parameters, self.point)
        return evidence.followed(self._guest, self._symbols, self._kind, self.point, seen, self._called)

    def wait_until_armed(self) -> Observation:
        seen = final_form.wait_until_armed(self._guest, self._kind, self.point, self.observe, "after loading")
        if self._has("address"):
            address = self._parameters.address()
            if address != self.point.address:
                raise EvidenceError(f"the module's probe is at {address:x}, not at {self.point.name}")
        if self._kind.mechanism == "pointer":
            memory = ModuleMemory.of(self._guest, self.module_name)
            if not memory.start <= seen.pointer < memory.end:
                what = f"{self.point.name} points to {seen.pointer:#x}, not into module {self.module_name}"
                raise EvidenceError(what)
        if self._kind.is_traced:
            evidence.check_called(self._kind, self.point, seen, self.module_name, "after loading", self._symbols)
        if self._kind.template in ("kprobe", "kretprobe", "jprobe"):
            evidence.check_step(self._kind, self.parameter("step"))
        return seen

    def detour(self, seen: Observation) -> str | None:
        """The range of a djprobe's detour buffer, after checking that the jump leads into it and the module owns it.

        None for other mechanisms. A jump into a buffer of the kernel's own optimiser is not a djprobe.
        """
        if self._kind.mechanism != "jmp":
            return None
        begin, size = self._parameters.found("detour", _DETOUR)
        start, end = int(begin, 16), int(begin, 16) + int(size)
        memory = ModuleMemory.of(self._guest, self.module_name)
        if not memory.start <= start < end <= memory.end:
            raise EvidenceError(f"the detour buffer at {start:#x} is not in module {self.module_name}")
        target = self.point.address + (seen.jump_target or 0)
        if not start <= target < end:
            raise EvidenceError(
                f"the jump at {self.point.name} leads to {target:#x}, not into the detour at {start:#x}"
            )
        return f"{start:#x}-{end:#x}"


@contextmanager
def module_attached(
    guest: Guest,
    kind: ProbeKind,
    module: Module,
    point: ProbePoint,
    symbols: Symbols,
    *,
    time_limit: float = COMMAND_LIMIT,
) -> Iterator[ModuleAttachment]:
    """Load a probe module and let it arm its probe; disarm and unload at the end.

    ``point`` is the probed function's entry. For a hook and a tracepoint, the module reports the place.
    ``time_limit`` is in host seconds, for loading. Raises EvidenceError if the module is refused (with its own reason
    from the kernel's log), or if the original bytes are not restored at the end.
    """
    armed_by_host = kind.site in ("hook", "tracepoint")
    parameters = Parameters(guest, module.name)

    def take_out() -> None:
        """Disarm what the host has armed, and unload the module, which restores the original bytes."""
        if armed_by_host:
            parameters.put("armed", "0")
            evidence.check_untouched(point, _observe(guest, kind, parameters, point), "after disarming")
        guest.succeed(["rmmod", module.name])
        look = partial(evidence.observe, guest, point, kind.site)
        final_form.wait_until_untouched(guest, kind, point, look, "after unloading")

    if not armed_by_host:
        evidence.check_untouched(point, evidence.observe(guest, point, kind.site), "before loading")
    final_form.allow_optimisation(guest, kind)
    with ExitStack() as loaded:
        for needed in module.needed:
            load(guest, needed.name, needed.file, time_limit=time_limit)
            loaded.enter_context(attachment.cleanup_after(partial(guest.succeed, ["rmmod", needed.name])))
        load(guest, module.name, module.file, parameters=module.parameters, time_limit=time_limit)
        loaded.enter_context(attachment.cleanup_after(take_out))
        if armed_by_host:
            address, name = parameters.address(), kind.tracepoint
            point = find_hook(guest, address) if name is None else find_static_branch(guest, address, name)
            evidence.check_untouched(point, _observe(guest, kind, parameters, point), "before arming")
            parameters.put("armed", "1")
        yield ModuleAttachment(guest, kind, module, point, symbols)


def _observe(guest: Guest, kind: ProbeKind, parameters: Parameters, point: ProbePoint) -> Observation:
    seen = evidence.observe(guest, point, kind.site)
    if kind.site != "tracepoint":
        return seen
    # The kernel lists no module probes at tracepoints; the tracepoint's static key counts them.
    return Observation(seen.live, "[ENABLED]" if parameters.read("enabled") != "0" else None)


def attached(
    guest: Guest,
    kind: ProbeKind,
    artifact: Module | Path | BpfObject | None,
    point: ProbePoint,
    symbols: Symbols,
    time_left: Callable[[], float],
) -> AbstractContextManager[attachment.Attachment]:
    """Arm a probe at a ``point`` with its ``artifact``; remove it at the end.

    ``artifact`` is a module, bpfprobe for a BPF program, a tool or a one-liner, an object of a user's BPF programs, or
    None for an event of the kernel's own. ``time_left`` returns the host seconds left. Raises EvidenceError if the
    kernel refuses it (with the kernel's reason), or if the original bytes are not restored at the end.
    """
    if isinstance(artifact, Module):
        return module_attached(guest, kind, artifact, point, symbols, time_limit=time_left())
    # Each way has files of its own, and a run uses a few of them.
    if isinstance(artifact, BpfObject):
        from orchestrator.probes.user_bpf_attachment import user_bpf_attached

        return user_bpf_attached(guest, kind, artifact, point, symbols)
    if artifact is not None and kind.tool is not None:
        from orchestrator.probes.tool_attachment import tool_attached

        return tool_attached(guest, kind, artifact, point, symbols, time_left)
    if artifact is not None and kind.one_liner is not None:
        from orchestrator.probes.one_liner_attachment import one_liner_attached

        return one_liner_attached(guest, kind, artifact, point, symbols, time_left)
    if artifact is not None:
        from orchestrator.probes.bpf_attachment import bpf_attached

        return bpf_attached(guest, kind, artifact, point, symbols)
    if kind.event == "graph":
        from orchestrator.probes.graph_attachment import graph_attached

        return graph_attached(guest, kind, point, symbols)
    from orchestrator.probes.event_attachment import event_attached

    return event_attached(guest, kind, point, symbols)
