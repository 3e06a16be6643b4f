# SPDX-License-Identifier: GPL-2.0-only
"""Is what tracefs says of an event read in full, and anything else an error of the cell?"""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest
from guest_with_files import guest_with
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.catalog.probes import probes
from orchestrator.errors import EvidenceError
from orchestrator.probes.event_attachment import definition_of
from orchestrator.probes.point import ProbePoint
from orchestrator.probes.tracefs import INSTANCE, TracedEvent, TraceEvent, profiled, traced_event

FOLDER = f"{INSTANCE}/events/lab/probe"
HISTOGRAM = """\
# event histogram
#
# trigger info: hist:keys=common_pid:vals=hitcount:sort=hitcount:size=4096 [active]
#

{ common_pid:         94 } hitcount:          1
{ common_pid:          1 } hitcount:         40

Totals:
    Hits: 41
    Entries: 2
    Dropped: 0
"""
STATS = "entries: 1\noverrun: 0\ncommit overrun: 0\nbytes: 20\noldest event ts: 1\nnow ts: 2\ndropped events: 0\n"
LINE = "           agent-1       [000] ..Zff      1433: probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)"


def event(**files: str) -> TraceEvent:
    paths = {
        "hist": f"{FOLDER}/hist",
        "stats": f"{INSTANCE}/per_cpu/cpu0/stats",
        "trace": f"{INSTANCE}/per_cpu/cpu0/trace",
    }
    return TraceEvent(guest_with({paths[name]: text.encode() for name, text in files.items()}), "lab", "probe")


def test_hits_are_counted_by_thread() -> None:
    assert event(hist=HISTOGRAM).counts() == {94: 1, 1: 40}
    assert (
        event(hist=HISTOGRAM.replace("{", "#{").replace(": 41", ": 0").replace("Entries: 2", "Entries: 0")).counts()
        == {}
    )


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Hits: 41", "Hits: 42"),
        ("Entries: 2", "Entries: 3"),
        ("{ common_pid:         94 } hitcount:          1\n", ""),
        ("Totals:", ""),
    ],
)
def test_a_histogram_that_has_not_got_all_is_refused(before: str, after: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the histogram of the event cannot be read"):
        event(hist=HISTOGRAM.replace(before, after)).counts()


def test_a_histogram_that_has_dropped_hits_is_refused() -> None:
    with pytest.raises(EvidenceError, match=r"has dropped 3 hits$"):
        event(hist=HISTOGRAM.replace("Dropped: 0", "Dropped: 3")).counts()


def test_what_was_recorded_is_read() -> None:
    said = "probe: (vfs_read+0x5/0x310 <ffffffff813669e5>)"
    assert event(stats=STATS, trace=f"# tracer: nop\n#\n{LINE}\n").recorded() == [TracedEvent(0, 1433, 1, said)]
    spaced = LINE.replace("agent-1 ", "a-b [000] c-77 ")
    assert traced_event(spaced).pid == 77


@pytest.mark.parametrize("lost", ["overrun: 0", "commit overrun: 0", "dropped events: 0", "overrun"])
def test_a_buffer_that_has_lost_events_is_refused(lost: str) -> None:
    with pytest.raises(EvidenceError, match=r"^the buffer of CPU 0 has lost events"):
        event(stats=STATS.replace(lost, f"{lost}1"), trace=LINE).recorded()


@pytest.mark.parametrize("trace", ["", f"{LINE}\n{LINE}\n", LINE.replace("[000]", "[001]")])
def test_events_that_are_not_as_many_as_the_buffer_says_are_refused(trace: str) -> None:
    with pytest.raises(EvidenceError, match=r"events of CPU 0 can be read, and its buffer says"):
        event(stats=STATS, trace=trace).recorded()


@given(st.text(max_size=200))
def test_any_line_is_an_event_or_refused(line: str) -> None:
    with contextlib.suppress(EvidenceError):
        assert traced_event(line).said


def test_hits_that_the_kernel_skipped_are_read() -> None:
    file = "/sys/kernel/tracing/kprobe_profile"
    line = b"  probe                                                     21               4\n"
    assert profiled(guest_with({file: line}), "kprobe") == [21, 4]
    for listing in (b"", b"  another          1     0\n", b"  probe  1  1\n  probe  2  2\n"):
        with pytest.raises(EvidenceError, match=r"does not list the probe"):
            profiled(guest_with({file: listing}), "kprobe")


def test_a_definition_is_what_perf_probe_writes() -> None:
    entry = ProbePoint("vfs_read", 5, 0xC1000005, b"")
    assert definition_of(probes()["kprobe-event"], replace(entry, offset=0)).text == "p:lab/probe vfs_read"
    assert definition_of(probes()["kprobe-event"], entry).text == "p:lab/probe vfs_read+5"
    assert definition_of(probes()["kretprobe-event"], entry).text == "r:lab/probe vfs_read"
