# SPDX-License-Identifier: GPL-2.0-only
"""The measurement and proof of one loop with a marker in a running guest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.markers.loops import COUNTED_ROUNDS, MarkerLoops
from orchestrator.benchmarks.markers.rows import MarkerRow, marker_row
from orchestrator.benchmarks.markers.task import MarkerCell
from orchestrator.catalog.probes import BASELINE
from orchestrator.errors import EvidenceError, GuestError
from orchestrator.guest.guest import Guest
from orchestrator.guest.interrupts import INT3
from orchestrator.probes.loading import load
from orchestrator.profile.profiled import Counter, stored
from orchestrator.results.contract import CellRecord, Evidence, ProfileEvidence
from orchestrator.results.profile import CellProfile
from orchestrator.results.statistics import mean
from orchestrator.results.validity import valid_result
from orchestrator.run.deadline import CellDeadline
from orchestrator.run.guest_checks import CLOCKSOURCE
from orchestrator.run.postconditions import check_clocksource, permitted_taint
from orchestrator.run.ready_guest import ReadyGuest
from orchestrator.run.record import identity
from orchestrator.steps import step

_SIZES = {"immediate": 2, "flag": 1}
_LOOKED_AT = 5
"""Bytes of the other places: as long as a jump."""
_UNCONNECTED = {"immediate": b"\xb0\x00", "flag": b"\x00"}
_CONNECTED = {"immediate": b"\xb0\x01", "flag": b"\x01"}
_JUMPS = (0xE9, 0xEB)
_NOP = (0x0F, 0x66, 0x3E)
_FEWEST_SAMPLES = 2
"""The check that samples are equal needs two."""


@dataclass(frozen=True)
class _Proof:
    """A marker's observed state: the bytes at its place without a probe, while timed and while counted."""

    symbol: str
    place: int
    original: bytes
    timed: bytes
    counted: bytes
    hits: int
    int3: int
    profile: ProfileEvidence | None


def measure_marker(
    ready: ReadyGuest, cell: MarkerCell, module: Module, notes: Sequence[str], profile: Path | None = None
) -> CellRecord:
    """Measure a loop and prove it. Its overhead follows later, from the empty loop's cost.

    The cell's profile goes into the file ``profile``, if it is given. Raises EvidenceError when a proof fails,
    GuestError when the guest fails or the cell's time is over.
    """
    row = marker_row(cell.task.row)
    assert row is not None
    guest = ready.guest
    mark = guest.console.length()
    counter = None if profile is None else Counter(guest, ready.symbols, module)
    with _loaded(guest, module, CellDeadline(cell.time_limit)) as loops:
        place = loops.address(row.loop, row.place)
        original = _look(guest, row, place)
        _check_disconnected(row, original, "after loading")
        with _connected(loops, row, row.probe):
            timed = _look(guest, row, place)
            _check(row, row.probe, timed, original, "before the rounds")
            _check_probe(loops, row, row.probe, "before the rounds")
            samples, profiled = _samples(loops, row, cell, counter)
            _check_same(_look(guest, row, place), timed, "while the rounds ran")
            _check_probe(loops, row, row.probe, "after the rounds")
            if row.probe is not None:
                counted, hits, int3 = _counted_in_place(guest, loops, row, place, timed)
        _check_same(_look(guest, row, place), original, "after disconnecting")
        if row.probe is None:
            counted, hits, int3 = _counted_apart(guest, loops, row, place, original)
    guest.check_console(mark)
    check_clocksource(guest)
    evidence = None if profile is None or profiled is None else stored(profiled, profile)
    proof = _Proof(f"{module.name}.{row.loop}", place, original, timed, counted, hits, int3, evidence)
    return _record(ready, cell, samples, proof, notes)


def _counted_in_place(
    guest: Guest, loops: MarkerLoops, row: MarkerRow, place: int, timed: bytes
) -> tuple[bytes, int, int]:
    """The bytes, hits and breakpoint traps of a counting pass in the timed connection, its probe exchanged."""
    assert row.probe is not None
    assert row.counting is not None
    loops.exchange(row.counting)
    counted = _look(guest, row, place)
    _check_same(counted, timed, "when the probe was exchanged")
    hits, int3 = _count(guest, loops, row)
    _check_same(_look(guest, row, place), timed, "while the rounds were counted")
    _check_probe(loops, row, row.counting, "after the counted rounds")
    loops.exchange(row.probe)
    _check_same(_look(guest, row, place), timed, "when the probe was exchanged")
    _check_probe(loops, row, row.probe, "after the exchange")
    return counted, hits, int3


def _counted_apart(
    guest: Guest, loops: MarkerLoops, row: MarkerRow, place: int, original: bytes
) -> tuple[bytes, int, int]:
    """The same for a marker that was timed without a probe: one is connected to see that the marker is there."""
    with _connected(loops, row, row.counting):
        counted = _look(guest, row, place)
        _check(row, row.counting, counted, original, "before the counted rounds")
        hits, int3 = _count(guest, loops, row)
        _check_same(_look(guest, row, place), counted, "while the rounds were counted")
    _check_same(_look(guest, row, place), original, "after disconnecting")
    return counted, hits, int3


def _samples(
    loops: MarkerLoops, row: MarkerRow, cell: MarkerCell, counter: Counter | None
) -> tuple[tuple[float, ...], CellProfile | None]:
    """Samples, all the same whole number, and their profile. Raises EvidenceError for others."""
    count = max(_FEWEST_SAMPLES, cell.repeats)
    written = 0 if counter is None else counter.mark()
    timed = [loops.timed(row.loop, row.rounds, copies=row.copies) for _ in range(count)]
    samples = [(twice - once) / row.rounds for once, twice in timed]
    if len(set(samples)) != 1:
        raise EvidenceError(f"samples of one boot differ: {', '.join(f'{s:.10g}' for s in samples)}")
    if not samples[0].is_integer():
        raise EvidenceError(f"a round of {row.loop} took {samples[0]:.10g} instructions, which is no whole number")
    if counter is None:
        return tuple(samples), None
    with step("count instructions"):
        return tuple(samples), counter.profile_rounds(written, timed, cell=cell.id, rounds=row.rounds)


def _count(guest: Guest, loops: MarkerLoops, row: MarkerRow) -> tuple[int, int]:
    """Hits and breakpoint traps of the counting pass. Raises EvidenceError unless their numbers are as expected."""
    with guest.counted_interrupts() as traps:
        hits, wrong = loops.count(row.loop)
    expected = COUNTED_ROUNDS if row.counting else 0
    if (hits, wrong) != (expected, 0):
        raise EvidenceError(
            f"in {COUNTED_ROUNDS} rounds the probe was called {hits} times, not {expected}, "
            f"and {wrong} times with other arguments than were passed"
        )
    if traps[INT3] != hits * row.int3:
        raise EvidenceError(f"{hits} hits took {traps[INT3]} breakpoint traps, not {row.int3} each")
    return hits, traps[INT3]


def _record(
    ready: ReadyGuest,
    cell: MarkerCell,
    samples: tuple[float, ...],
    proof: _Proof,
    notes: Sequence[str],
) -> CellRecord:
    row = marker_row(cell.task.row)
    assert row is not None
    value = mean(samples)
    overhead = 0.0 if cell.task.row == BASELINE else None
    taint = permitted_taint(ready.guest)
    parameters: dict[str, str | int] = {
        **cell.parameters,
        "kernel_release": ready.artifacts.kernel.release,
        "rounds": row.rounds,
    }
    if row.probe is None and row.counting is not None:
        parameters["armed_bytes"] = proof.counted.hex()
    with valid_result():
        return CellRecord(
            **identity(cell),
            parameters=parameters,
            status="ok",
            notes=tuple(notes),
            samples=samples,
            value=value,
            overhead=overhead,
            interval=None if overhead is None else (overhead, overhead),
            evidence=Evidence(
                mechanism="none" if cell.task.row == BASELINE else row.place.replace("_", "-"),
                probe_bytes=proof.timed.hex(),
                hits=proof.hits,
                int3=proof.int3,
                calls=COUNTED_ROUNDS,
                hits_per_call=1 if row.counting else 0,
                restored=True,
                clocksource=CLOCKSOURCE,
                original_bytes=proof.original.hex(),
                address=f"{proof.place:#x}",
                symbol=proof.symbol,
                flag="",
                taint=taint,
                batches=2 * len(samples),
                disturbed=0,
            ),
            profile=proof.profile,
        )


@contextmanager
def _loaded(guest: Guest, module: Module, deadline: CellDeadline) -> Iterator[MarkerLoops]:
    load(guest, module.name, module.file)
    try:
        yield MarkerLoops(guest, module.name, deadline.left)
    except GuestError:
        raise  # a failed guest takes no more commands
    except BaseException:
        guest.run(["rmmod", module.name])
        raise
    guest.succeed(["rmmod", module.name])


@contextmanager
def _connected(loops: MarkerLoops, row: MarkerRow, probe: str | None) -> Iterator[None]:
    if probe is not None:
        loops.connect(row.loop, probe)
    yield
    loops.disconnect()


def _look(guest: Guest, row: MarkerRow, place: int) -> bytes:
    return guest.read_memory(place, _SIZES.get(row.place, _LOOKED_AT))


def _check_disconnected(row: MarkerRow, live: bytes, when: str) -> None:
    right = live == _UNCONNECTED[row.place] if row.place in _UNCONNECTED else True
    if row.place in ("static_key", "tracepoint"):
        right = live[0] in _NOP
    if not right:
        raise EvidenceError(f"{when}, {row.loop} is not as it is without a probe: its bytes are {live.hex(' ')}")


def _check(row: MarkerRow, probe: str | None, live: bytes, original: bytes, when: str) -> None:
    """Raise EvidenceError unless the place is patched where a probe is connected, and original without one."""
    if probe is None:
        _check_same(live, original, when)
        return
    right = {
        "immediate": live == _CONNECTED["immediate"],
        "flag": live == _CONNECTED["flag"],
        "static_key": live[0] in _JUMPS,
        "tracepoint": live[0] in _JUMPS,
        "int3": live[0] == 0xCC,
        "loop": False,
    }[row.place]
    if not right:
        raise EvidenceError(f"{when}, nothing is connected to {row.loop}: its bytes are {live.hex(' ')}")


def _check_probe(loops: MarkerLoops, row: MarkerRow, probe: str | None, when: str) -> None:
    """Raise EvidenceError unless the marker calls this probe; None: nothing is connected."""
    found = loops.probe()
    if found != (probe or "-"):
        raise EvidenceError(f"{when}, the marker of {row.loop} calls {found}, not {probe or 'nothing'}")


def _check_same(live: bytes, original: bytes, when: str) -> None:
    if live != original:
        raise EvidenceError(f"{when}, the marker's bytes changed from {original.hex(' ')} to {live.hex(' ')}")
