# SPDX-License-Identifier: GPL-2.0-only
"""Is a recording pass believed only where the kernel left out no handler, traps or not?"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orchestrator.artifacts.modules import Module
from orchestrator.benchmarks.calls import cell_work, counting_pass
from orchestrator.benchmarks.calls.cell_work import Entries, HitCounts, PointObservations
from orchestrator.benchmarks.calls.counting_pass import count_hits
from orchestrator.benchmarks.calls.measurement import extra_sizes, hit_notes
from orchestrator.catalog.probes import Extra, probes
from orchestrator.errors import EvidenceError
from orchestrator.guest.guest import Guest
from orchestrator.probes.arming import ModuleAttachment
from orchestrator.probes.attachment import Attachment, Called
from orchestrator.probes.events import EventKind
from orchestrator.probes.evidence import Observation
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.symbols import Symbols
from orchestrator.profile.stored.cell_profile import InstructionCount, SymbolProfile

SYMBOLS = Symbols(b"c1000000 T _stext\nc1484720 T _etext\nc108c7a0 T __ia32_sys_gettimeofday\n")


POINT = ProbePoint("__ia32_sys_gettimeofday", 0, 0xC108C7A0, bytes(16))


CALLED = Called("sysenter", 3, frozenset({28}), number=78, arguments=(0,) * 6, result=0)


class RecordedGuest:
    """A guest whose probe has recorded the calls, and missed some hits."""

    machine = SimpleNamespace(smp=1)

    def __init__(self, missed: int) -> None:
        events = [
            struct.pack("<QII6Q", 100 + number, EventKind.KPROBE, 28, POINT.address, 7, 8, 0xC1002400, 0, 0)
            for number in range(CALLED.calls)
        ]
        head = struct.pack("<8sIIIHHQ", b"labring", 1, 0, 4, 64, 4, len(events))
        self._files = {
            "/sys/devices/system/cpu/possible": b"0\n",
            "/sys/kernel/debug/lab_kprobe/cpu0": head + b"".join(events) + bytes(64),
            "/sys/module/lab_kprobe/parameters/missed": f"{missed}\n".encode(),
        }

    def get(self, path: str, **_: object) -> bytes:
        return self._files[path]

    def put(self, data: bytes, path: str) -> None:
        assert path.startswith("/sys/module/lab_kprobe/parameters/"), data


def counted(missed: int) -> HitCounts:
    """What a recording pass comes to under KVM, where no traps are counted."""
    guest = cast(Guest, RecordedGuest(missed))
    artifacts = SimpleNamespace(machine=SimpleNamespace(timing="kvm"))
    work = SimpleNamespace(
        ready=SimpleNamespace(guest=guest, symbols=SYMBOLS, artifacts=artifacts),
        cell=SimpleNamespace(handler="record"),
        handler="record",
        workload=SimpleNamespace(exact=False, counted=CALLED.calls, hits=1, call=lambda *_, **__: CALLED),
        kind=probes()["kprobe"],
        deadline=SimpleNamespace(left=lambda: 1.0),
    )
    module = Module("lab_kprobe", Path("lab_kprobe.ko"), "key", None)
    return count_hits(cast(Any, work), ModuleAttachment(guest, probes()["kprobe"], module, POINT, SYMBOLS), None)


def test_a_recording_of_every_hit_is_believed() -> None:
    assert counted(0) == HitCounts(3, 0, None, None)


def test_a_handler_that_was_left_out_fails_a_recording() -> None:
    with pytest.raises(EvidenceError, match=r"^the kernel skipped the handler 2 times$"):
        counted(2)


@pytest.mark.parametrize(
    ("calls", "passes", "wrong"),
    [
        (1000, [1000], None),
        (1000, [1006, 1000], None),  # a timer tick entered the function as well
        (1000, [1001] * 5, 1001),
        (1000, [2000], 2000),
        (1000, [999], 999),
        (2, [10], 10),  # a program's runs, each with five hits
    ],
)
def test_a_pass_that_an_interrupt_fell_into_is_repeated(
    monkeypatch: pytest.MonkeyPatch, calls: int, passes: list[int], wrong: int | None
) -> None:
    left = list(passes)
    monkeypatch.setattr(counting_pass, "_pass", lambda *_: HitCounts(left.pop(0), 0, None, None))
    work = SimpleNamespace(
        cell=SimpleNamespace(handler="noop"),
        handler="noop",
        workload=SimpleNamespace(counted=calls, hits=1),
        kind=probes()["kprobe"],
    )
    attachment = cast(Any, SimpleNamespace(set_handler=lambda handler: None))
    if wrong is None:
        assert count_hits(cast(Any, work), attachment).hits == 1000
    else:
        with pytest.raises(EvidenceError, match=f"the probe's handler ran {wrong} times"):
            count_hits(cast(Any, work), attachment)
    assert not left


@pytest.mark.parametrize(("counted", "known"), [(2000, 2000), (2012, None), (0, 0)])
def test_traps_of_a_module_that_counts_no_hits_by_others(
    monkeypatch: pytest.MonkeyPatch, counted: int, known: int | None
) -> None:
    monkeypatch.setattr(counting_pass, "_pass", lambda *_: HitCounts(1000, None, counted, None))
    work = SimpleNamespace(
        cell=SimpleNamespace(handler="noop", is_found=False),
        handler="noop",
        workload=SimpleNamespace(counted=1000, hits=1),
        kind=probes()["kprobe"].model_copy(update={"int3_per_hit": None}),
    )
    attachment = cast(Any, SimpleNamespace(set_handler=lambda handler: None))
    assert count_hits(cast(Any, work), attachment).int3 == known


# Is what a hit passes besides its handler told apart, by what a call costs once each is taken off?


class Registered:
    """A kprobe whose hits pass some extras."""

    def __init__(self, *extras: Extra) -> None:
        self._left = list(extras)

    def extras(self) -> Sequence[Extra]:
        return list(self._left)

    def disable(self, extra: Extra) -> None:
        self._left.remove(extra)


@pytest.mark.parametrize(("kept", "left"), [("kept", ["post_handler", "aggregator"]), ("removed", [])])
def test_a_plain_kprobe_is_rid_of_all(monkeypatch: pytest.MonkeyPatch, kept: str, left: Sequence[Extra]) -> None:
    registered = Registered("post_handler", "aggregator")
    probe = SimpleNamespace(wait_until_armed=lambda: None, detour=lambda seen: None)
    probe.extras, probe.disable = registered.extras, registered.disable
    monkeypatch.setattr(cell_work, "attached", lambda *given: nullcontext(probe))
    nothing = SimpleNamespace(guest=None, symbols=None, module=None, tool=None, handler="noop", left=None)
    work = SimpleNamespace(ready=nothing, setup=nothing, cell=nothing, deadline=nothing, point=None)
    work.kind = SimpleNamespace(extras=kept)
    with cell_work.armed_probe(cast(Any, work)) as armed:
        assert registered.extras() == left
        assert list(armed.removed) == ([] if left else ["post_handler", "aggregator"])


def sizes(extras: Sequence[Extra], value: float, rests: Iterator[Sequence[float]], hits: int = 1) -> dict[Extra, float]:
    registered = cast("Attachment", Registered(*extras))
    return dict(extra_sizes(registered, value, lambda: next(rests), hits))


def test_each_extra_is_what_a_call_costs_less_without_it() -> None:
    rests = iter([(849.0, 849.0), (813.0, 813.0)])
    assert sizes(("post_handler", "aggregator"), 889.0, rests) == {"post_handler": 40.0, "aggregator": 36.0}


def test_a_size_is_of_one_hit() -> None:
    assert sizes(("aggregator",), 1000.0, iter([(928.0, 928.0)]), hits=2) == {"aggregator": 36.0}


def test_what_costs_nothing_is_left_out() -> None:
    rests = iter([(1661.0, 1661.0), (1630.0, 1630.0)])
    assert sizes(("post_handler", "aggregator"), 1661.0, rests) == {"aggregator": 31.0}


@pytest.mark.parametrize("rest", [(849.0, 850.0), (890.0, 890.0)])
def test_samples_that_cannot_be_are_no_size(rest: Sequence[float]) -> None:
    with pytest.raises(EvidenceError, match=r"^a call costs 889 instructions, and without its aggregator 8[0-9 or]+"):
        sizes(("aggregator",), 889.0, iter([rest]))


BOTH: tuple[Extra, Extra] = ("post_handler", "aggregator")
PROVED = PointObservations(POINT, Observation(b"", "[FTRACE]", called="kprobe_ftrace_handler"), 1000)


def test_what_a_plain_kprobe_is_rid_of_is_noted() -> None:
    notes = list(hit_notes(replace(PROVED, removed=BOTH)))
    assert [note.startswith("without the ") for note in notes] == [True, True]


def test_a_note_has_the_size_or_says_where_to_get_it() -> None:
    passed = replace(PROVED, extras=BOTH)
    notes = list(hit_notes(replace(passed, extra_sizes={"aggregator": 31.0})))
    assert [note[:33] for note in notes] == ["31 instructions of a hit are the "]
    assert len(list(hit_notes(replace(passed, extra_sizes={"aggregator": 36.0, "post_handler": 40.0})))) == 2
    unmeasured = list(hit_notes(passed))
    assert len(unmeasured) == 2
    assert all(note.endswith("clock 'instructions' measures what that costs") for note in unmeasured)


def test_a_guard_of_the_function_tracer_is_noted() -> None:
    assert list(hit_notes(PROVED)) == []
    guarded = replace(PROVED.seen, called="ftrace_ops_assist_func by way of kprobe_ftrace_handler")
    notes = list(hit_notes(replace(PROVED, seen=guarded)))
    assert ["ftrace_ops_assist_func() calls" in note for note in notes] == [True]


# Are the hits of a module that does not count them proved by a function that each call entered, and by no other?

HANDLER, LOOP, INT3_CODE = "53", "90", "cc"


def executed(name: str, module: str | None, *instructions: tuple[int, str, int]) -> SymbolProfile:
    """A function in a profile: the offset, code and executions of each of its instructions."""
    return SymbolProfile(
        name=name,
        place="kernel" if module is None else "module",
        module=module,
        address=0,
        instructions=tuple(InstructionCount(offset, code, times, 0, 0, 0) for offset, code, times in instructions),
    )


class ListingGuest:
    """A guest that lists where it has probes."""

    def __init__(self, kprobes: bytes) -> None:
        self._kprobes = kprobes

    def get(self, path: str, **_: object) -> bytes:
        return self._kprobes if path.endswith("kprobes/list") else b""


Proved = Callable[..., list[str]]


@pytest.fixture
def proved(tmp_path: Path) -> Proved:
    file = tmp_path / "mine.ko"
    file.symlink_to(sys.executable)  # an ELF file without functions that the kernel keeps

    def of(entries: Entries, hits: int, kprobes: bytes = b"") -> list[str]:
        return entries.proved(hits, Module("mine", file, "key", None), cast(Guest, ListingGuest(kprobes)))

    return of


def test_a_function_that_each_call_entered_proves_the_hits(proved: Proved) -> None:
    profile = [
        executed("vfs_read", None, (0, INT3_CODE, 10), (1, HANDLER, 10)),
        executed("handler", "mine", (0, HANDLER, 10), (1, LOOP, 70)),
        executed("helper", "mine", (0, HANDLER, 30)),
        executed("jumped_into", "mine", (4, HANDLER, 10)),
        executed("other", "others", (0, HANDLER, 10)),
    ]
    entries = Entries.of(profile, "mine", 10)
    assert entries == Entries(10, {"handler": 10, "helper": 30}, int3=10)
    assert proved(entries, 10) == ["handler [mine]"]
    assert proved(entries, 30) == ["helper [mine]"]


@pytest.mark.parametrize(
    ("by_function", "kprobes", "words", "hint"),
    [
        (
            {"handler": 20},
            b"",
            "should enter the handler of module mine 10 times, and entered handler 20",
            "hits: 2",
        ),
        ({"handler": 9}, b"", "and entered handler 9 times", ""),
        ({}, b"", "the calls executed no function of module mine", "make calls that reach"),
        ({}, b"c1107745  k  do_nanosleep+0x5    [OPTIMIZED]\n", "probes at do_nanosleep+0x5", "make calls that reach"),
    ],
)
def test_hits_that_no_function_proves_are_told(
    proved: Proved, by_function: dict[str, int], kprobes: bytes, words: str, hint: str
) -> None:
    with pytest.raises(EvidenceError) as refused:
        proved(Entries(10, by_function, 0), 10, kprobes)
    assert words in "\n".join((refused.value.what, *refused.value.detail))
    assert hint in refused.value.hint
    assert bool(hint) == bool(refused.value.hint)
