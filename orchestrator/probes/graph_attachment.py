# SPDX-License-Identifier: GPL-2.0-only
"""A function under the function graph tracer: its entry and its return are recorded, as one line of the trace."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from orchestrator.catalog.probes import Handler, ProbeKind
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes import function_graph, traced_functions
from orchestrator.probes.attachment import Called, cleanup_after, write_events
from orchestrator.probes.event_attachment import check_name
from orchestrator.probes.evidence import Observation, check_untouched
from orchestrator.probes.final_form import wait_until_untouched
from orchestrator.probes.place import Place, PlacedAttachment, place_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols


class GraphAttachment(PlacedAttachment):
    """A function that the function graph tracer traces, made by ``graph_attached``."""

    armed_when = "after tracing"

    def __init__(self, guest: Guest, kind: ProbeKind, place: Place, graph: function_graph.FunctionGraph) -> None:
        super().__init__(guest, kind, place)
        self._graph = graph
        self._records = False
        self._calls: Sequence[function_graph.GraphedCall] = ()

    def observe(self) -> Observation:
        self._graph.check(records=self._records)
        seen = self._place.observe()
        sides = traced_functions.graph_sides(self._kind.option, records=self._records)
        # Older kernels do not list what the tracer calls.
        if " for " in (seen.called or "") and not str(seen.called).endswith(sides):
            raise EvidenceError(f"the function tracer calls {seen.called} at {self.point.symbol}, not {sides}")
        return seen

    def set_handler(self, handler: Handler) -> None:
        """It counts nothing: hits are counted in what it records."""
        if handler == "noop":
            self._calls = self._graph.recorded()
        self._records = handler != "noop"
        self._graph.select(records=self._records)

    def renewal(self) -> Callable[[], None] | None:
        return self._graph.empty if self._records else None

    def counts(self, called: Called) -> tuple[int, int]:
        for call in self._calls:
            self._check(call)
        hits = sum(call.pid in called.pids for call in self._calls)
        return hits, len(self._calls) - hits

    def recorded(self, called: Called, symbols: Symbols, file: Path | None) -> tuple[int, int]:
        write_events(file, function_graph.GraphedCall._fields, self._calls)
        return self.counts(called)

    def _check(self, call: function_graph.GraphedCall) -> None:
        # A function without arguments, or without type information, has "()" with funcgraph-args, too.
        lacks_result = self._kind.option == "funcgraph-retval" and call.result is None
        if call.function not in (self.point.symbol, *self.point.aliases) or lacks_result:
            raise EvidenceError(f"a traced call is not as it must be at {self.point.name}", detail=[str(call)])


@contextlib.contextmanager
def graph_attached(guest: Guest, kind: ProbeKind, point: ProbePoint, symbols: Symbols) -> Iterator[GraphAttachment]:
    """Let the function graph tracer trace the point's function; stop it at the end, and prove the original bytes."""
    check_name(kind, point)
    place = place_of(guest, kind, point, symbols)

    def remove() -> None:
        graph.stop()
        wait_until_untouched(guest, kind, place.point, place.observe, "after tracing")

    check_untouched(place.point, place.observe(), "before tracing")
    graph = function_graph.FunctionGraph(guest, point.symbol, kind.option)
    with cleanup_after(remove):
        graph.start()
        yield GraphAttachment(guest, kind, place, graph)
