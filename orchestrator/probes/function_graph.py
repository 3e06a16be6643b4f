# SPDX-License-Identifier: GPL-2.0-only
"""The function graph tracer at one function, and the calls that it records."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.guest.kernel_value import kernel_value
from orchestrator.probes.tracefs import BUFFER_KB, CLOCK, TRACEFS, buffers

_GRAPHED = re.compile(
    r"^ *(\d{1,5})\) +\S.{0,20}?-(\d{1,10}) +\|.{0,40}\|  ([\w.]{1,200})(?: \[\w{1,60}\])?"
    r"\((.{0,400})\);(?: +/\* (.{1,200}) \*/)?$"
)
"""A call by function_graph, with funcgraph-proc: `` 0)  bench-72   |   0.521 us    |  vfs_read(); /* = 0x0 */``."""


_SWITCH = re.compile(r"^ *-{20,}$|^ *\d{1,5}\) .{1,40} => .{1,40}$|^ *\d{1,5}\) .{1,40} (?:=+>|<=+) \|$|^$")
"""Lines between the calls of one thread and those of the next on a CPU, and around those that handle an interrupt."""


_IN_PARTS = re.compile(r"\) \{$|\|  +\}(?: /\* .{1,200} \*/)?$")


_NEVER = "1000000000"
"""A threshold in microseconds: no call takes so long, and neither its entry nor its return is recorded."""


class GraphedCall(NamedTuple):
    """A call recorded by the function graph tracer: its CPU and thread, the function, its arguments and result."""

    cpu: int
    pid: int
    function: str
    arguments: str
    result: str | None


class FunctionGraph:
    """The function graph tracer at one function. It is tracefs's own: before Linux 6.11 no instance can have it."""

    def __init__(self, guest: Guest, function: str, option: str | None) -> None:
        self._guest, self._function = guest, function
        self._options = [f"options/{name}" for name in ("funcgraph-proc", option) if name is not None]
        clock = re.search(r"\[(\S+)\]", self._get("trace_clock"))
        # "7 (expanded: 1408)": the kernel's own size as soon as a tracer is used.
        size = re.search(r"(\d+)\)?$", self._get("buffer_size_kb"))
        if clock is None or size is None:
            raise EvidenceError("the clock and the buffer of the guest's tracefs cannot be read")
        self._before = {
            "current_tracer": "nop",
            "tracing_thresh": "0",
            **dict.fromkeys(self._options, "0"),
            "set_ftrace_filter": "",
            "buffer_size_kb": size[1],
            "trace_clock": clock[1],
            "tracing_on": "1",
        }

    def start(self) -> None:
        """Trace the function, and record no call."""
        self._put("set_ftrace_filter", self._function)
        self._put("buffer_size_kb", BUFFER_KB)
        self._put("trace_clock", CLOCK)
        self.select(records=False)

    def select(self, *, records: bool) -> None:
        """Record each call, or let both sides run and record none. The tracer takes its options as it starts."""
        self._put("current_tracer", "nop")
        self._put("tracing_thresh", "0" if records else _NEVER)
        for option in self._options:
            self._put(option, "1")
        self._put("current_tracer", "function_graph")
        self._put("tracing_on", "1")
        self.empty()

    def empty(self) -> None:
        self._put("trace", "")

    def check(self, *, records: bool) -> None:
        """Raise EvidenceError unless the kernel shows what was selected, and has recorded nothing otherwise."""
        expected = {"current_tracer": "function_graph", "tracing_thresh": "0" if records else _NEVER}
        for file, text in (expected | dict.fromkeys(self._options, "1")).items():
            text_now = self._get(file)
            if text_now != text:
                raise EvidenceError(f"the kernel's {file} is {text_now[:40]!r}, not {text}")
        for cpu, entries, _ in () if records else buffers(self._guest, TRACEFS):
            if entries != 0:
                raise EvidenceError(f"the buffer of CPU {cpu} has {entries} events, and none was to be recorded")

    def recorded(self) -> Sequence[GraphedCall]:
        """The calls so far, and none any more: what reads them may be what is traced."""
        self._put("tracing_on", "0")
        calls: list[GraphedCall] = []
        for cpu, entries, all_lines in buffers(self._guest, TRACEFS):
            lines = [line for line in all_lines if not _SWITCH.match(line)]
            parts = [line for line in lines if _IN_PARTS.search(line)]
            if parts:
                raise EvidenceError(
                    f"a call on CPU {cpu} was not over as the function was called again", detail=parts[:4]
                )
            pairs = [(line, _GRAPHED.match(line)) for line in lines]
            wrong = [line for line, call in pairs if call is None or int(call[1]) != cpu]
            # The entry and the return have an event each.
            if wrong or 2 * len(pairs) != entries:
                raise EvidenceError(
                    f"{len(pairs)} calls on CPU {cpu} can be read, and its buffer says {entries} events",
                    detail=wrong[:4],
                )
            calls += [
                GraphedCall(cpu, int(match[2]), match[3], match[4], match[5]) for _, match in pairs if match is not None
            ]
        return calls

    def stop(self) -> None:
        """Undo everything; a failing step does not stop the others."""
        with contextlib.ExitStack() as last_first:
            for file, text in reversed(self._before.items()):
                last_first.callback(self._put, file, text)

    def _put(self, file: str, text: str) -> None:
        self._guest.put(text.encode(), f"{TRACEFS}/{file}")

    def _get(self, file: str) -> str:
        return kernel_value(self._guest, f"{TRACEFS}/{file}")
