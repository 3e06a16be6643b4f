# SPDX-License-Identifier: GPL-2.0-only
"""Is a recorder's report read as it was written, and anything else refused?"""

from __future__ import annotations

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.arch import Arch
from orchestrator.artifacts.kernel_code import KernelCode, Symbol
from orchestrator.artifacts.module_source import Value, render
from orchestrator.catalog.kernels import kernel, kernels
from orchestrator.catalog.probes import RecorderName, standard_events
from orchestrator.errors import EvidenceError, UsageError
from orchestrator.paths import data_dir, data_file
from orchestrator.probes.recorder import (
    MECHANISMS,
    MOST_PLACES,
    MOST_SITES,
    EventCount,
    PlaceCount,
    RecorderReport,
    Site,
    parse_report,
    recorder_values,
)

EXAMPLE = """\
recorder format=1 mechanism=kprobe_boosted state=stopped restored=yes
rings cpus=2 slots=4096 event-size=64 written=4123 overwritten=7
event syscall_entry recorded=1003 missed=1
event sched_switch recorded=3120 missed=0
place syscall_entry __ia32_sys_read recorded=1003 missed=1
place sched_switch finish_task_switch.isra.0 recorded=3120 missed=0
site __ia32_sys_read c1176db0 original=5589e583ec live=5589e583ec
site finish_task_switch.isra.0 c1074ea0 original=5557565383 live=5557565383
end events=2 places=2 sites=2
"""


names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,20}", fullmatch=True)


@st.composite
def reports(draw: st.DrawFn) -> RecorderReport:
    recording = draw(st.booleans())
    event_names = draw(st.lists(names, min_size=1, max_size=5, unique=True))
    symbols = draw(st.lists(names, min_size=1, max_size=8, unique=True))
    places = tuple(
        PlaceCount(draw(st.sampled_from(event_names)), symbol, draw(st.integers(0, 10**9)), draw(st.integers(0, 10**9)))
        for symbol in symbols
    )
    events = tuple(
        EventCount(
            name, sum(p.recorded for p in places if p.event == name), sum(p.missed for p in places if p.event == name)
        )
        for name in event_names
    )
    sites = []
    for symbol in symbols:
        for _ in range(draw(st.integers(1, 2))):
            size = draw(st.integers(1, 5))
            original, live = (
                draw(st.binary(min_size=size, max_size=size)),
                draw(st.binary(min_size=size, max_size=size)),
            )
            sites.append(Site(symbol, draw(st.integers(0, 2**64 - 1)), original, live))
    cpus, slots = draw(st.integers(1, 1024)), draw(st.integers(1, 2**31))
    recorded = sum(event.recorded for event in events)
    written = draw(st.integers(max(0, recorded - 10**6), recorded)) if recording else recorded
    return RecorderReport(
        mechanism=draw(st.sampled_from(["marker", "djprobe", "kprobe", "kprobe-boosted", "jprobe"])),
        recording=recording,
        restored=None if recording else all(site.live == site.original for site in sites),
        cpus=cpus,
        slots=slots,
        event_size=draw(st.integers(1, 4096)),
        written=written,
        overwritten=draw(st.integers(max(0, written - cpus * slots), max(0, written - slots))),
        events=events,
        places=places,
        sites=tuple(sites),
    )


def written(report: RecorderReport) -> bytes:
    """As the module writes it."""
    state = "recording" if report.recording else "stopped"
    restored = {None: "-", True: "yes", False: "no"}[report.restored]
    rings = f"cpus={report.cpus} slots={report.slots} event-size={report.event_size}"
    lines = [
        f"recorder format=1 mechanism={report.mechanism.replace('-', '_')} state={state} restored={restored}",
        f"rings {rings} written={report.written} overwritten={report.overwritten}",
        *(f"event {e.event} recorded={e.recorded} missed={e.missed}" for e in report.events),
        *(f"place {p.event} {p.symbol} recorded={p.recorded} missed={p.missed}" for p in report.places),
        *(f"site {s.symbol} {s.address:x} original={s.original.hex()} live={s.live.hex()}" for s in report.sites),
        f"end events={len(report.events)} places={len(report.places)} sites={len(report.sites)}",
    ]
    return ("\n".join(lines) + "\n").encode("ascii")


@given(reports())
def test_a_report_is_read_as_it_was_written(report: RecorderReport) -> None:
    assert parse_report(written(report)) == report


@given(reports(), st.data())
def test_a_report_that_is_cut_off_is_refused(report: RecorderReport, data: st.DataObject) -> None:
    whole = written(report)
    with pytest.raises(EvidenceError):
        parse_report(whole[: data.draw(st.integers(0, len(whole) - 1))])


@given(st.binary(max_size=400))
def test_anything_else_is_refused_with_a_sentence(content: bytes) -> None:
    with pytest.raises(EvidenceError, match="the recorder's report"):
        parse_report(content)


@given(reports(), st.data())
def test_a_line_that_is_gone_twice_or_spoilt_never_goes_unseen(report: RecorderReport, data: st.DataObject) -> None:
    lines = written(report).splitlines(keepends=True)
    number = data.draw(st.integers(0, len(lines) - 1))
    changed = data.draw(
        st.sampled_from(
            [
                lines[:number] + lines[number + 1 :],
                [*lines[: number + 1], *lines[number:]],
                [*lines[:number], b"x" + lines[number], *lines[number + 1 :]],
            ]
        )
    )
    with pytest.raises(EvidenceError):
        parse_report(b"".join(changed))


def test_the_example_is_read() -> None:
    report = parse_report(EXAMPLE.encode())
    assert (report.mechanism, report.recording, report.restored) == ("kprobe-boosted", False, True)
    assert ({event.event: event.recorded for event in report.events}["syscall_entry"], report.missed) == (1003, 1)
    assert (report.written, report.overwritten, report.slots) == (4123, 7, 4096)
    assert report.sites[1].address == 0xC1074EA0


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("format=1", "format=2", "has format 2, not 1"),
        ("restored=yes", "restored=-", "restored while it records, or neither"),
        ("restored=yes", "restored=no", "not what it shows"),
        ("live=5589e583ec", "live=cc89e583ec", "not what it shows"),
        ("live=5589e583ec", "live=5589e583", "not as many as they were"),
        ("event syscall_entry recorded=1003", "event syscall_entry recorded=1004", "do not add up"),
        ("overwritten=7", "overwritten=28", "28 of 4123 events cannot have been overwritten in 2 rings of 4096"),
        ("slots=4096", "slots=2048", "7 of 4123 events cannot have been overwritten in 2 rings of 2048"),
        ("slots=4096", "slots=0", "its rings cannot be such"),
        ("written=4123", "written=04123", "a line of another kind"),
        ("written=4123", "written=99999999999999999999999", "a line of another kind"),
        ("places=2", "places=3", "as many lines as it says"),
        ("end events=2 places=2 sites=2\n", "end events=2 places=2 sites=2\n\n", "more follows its end"),
        ("place sched_switch", "place irq_entry", "not listed once each"),
        ("event sched_switch", "event syscall_entry", "not listed once each"),
        ("site __ia32_sys_read", "site __ia32_sys_write", "its places and sites are not the same"),
        ("kprobe_boosted", "kprobe_böösted", "not all ASCII"),
    ],
)
def test_contradictory_reports_are_refused(old: str, new: str, reason: str) -> None:
    assert old in EXAMPLE
    with pytest.raises(EvidenceError, match=reason):
        parse_report(EXAMPLE.replace(old, new).encode())


@pytest.mark.parametrize("written", [4122, 4124, 4096, 8219])
def test_hits_that_the_rings_do_not_have_are_noticed(written: int) -> None:
    """The rings count what was written, independently of the places."""
    overwritten = max(0, written - 4096)
    rings = f"written={written} overwritten={overwritten}"
    with pytest.raises(
        EvidenceError, match=f"^{written} events were written .* rings, and its places counted 4123 hits"
    ):
        parse_report(EXAMPLE.replace("written=4123 overwritten=7", rings).encode())


def test_while_it_records_the_places_may_be_ahead_of_the_rings_only() -> None:
    at_work = EXAMPLE.replace("stopped restored=yes", "recording restored=-")
    assert parse_report(at_work.replace("written=4123", "written=4103").encode()).recording
    with pytest.raises(EvidenceError, match=r"^4124 events were written .* counted 4123 hits"):
        parse_report(at_work.replace("written=4123", "written=4124").encode())


def test_counts_of_32_bits_begin_again() -> None:
    wrapped = EXAMPLE.replace("syscall_entry recorded=1003", f"syscall_entry recorded={2**32 - 1}")
    wrapped = wrapped.replace("__ia32_sys_read recorded=1003", f"__ia32_sys_read recorded={2**32 - 1}")
    report = parse_report(wrapped.replace("written=4123 overwritten=7", "written=3119 overwritten=0").encode())
    assert (report.written, report.hits) == (3119, 2**32 + 3120)


def test_the_size_of_a_report_is_bounded() -> None:
    with pytest.raises(EvidenceError, match="bytes"):
        parse_report(b"x" * (1 << 20))
    many = "".join(f"place sched_switch f{n} recorded=0 missed=0\n" for n in range(MOST_PLACES))
    with pytest.raises(EvidenceError, match="a line of another kind"):
        parse_report(EXAMPLE.replace("site __ia32", many + "site __ia32", 1).encode())


# Is a recorder made for the events that were asked for, at places that a module has room for?

ARCHITECTURES: tuple[Arch, ...] = get_args(Arch)


HEADERS = {"djprobe": "djprobe.h", "jprobe": "jprobe.h", "kprobe": "optimiser.h"}


def number(file: str, name: str) -> int:
    """What a source of ``kmods`` defines a name as."""
    match = re.search(rf"^#define {name}\s+(\d+)", (data_dir("kmods") / file).read_text(), re.MULTILINE)
    assert match is not None
    return int(match[1])


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_every_event_has_its_places(mechanism: RecorderName, arch: Arch) -> None:
    values = recorder_values(mechanism, arch)
    symbols, events_of, events = values["symbols"], values["events_of"], values["events"]
    assert isinstance(symbols, tuple)
    assert isinstance(events_of, tuple)
    assert events == tuple(standard_events())
    assert len(set(symbols)) == len(symbols) == len(events_of)
    assert set(events_of) == set(range(len(standard_events())))
    if mechanism == "marker":
        assert (values["calls"], len(symbols)) == (0, len(standard_events()))
    else:
        assert isinstance(values["calls"], int)
        assert all("_sys_" in str(symbol) for symbol in symbols[: values["calls"]])
        assert values["calls"] >= 40
        assert len(symbols) <= number("djprobe/djprobe_stub.h", "DETOUR_COUNT")
    source = render("recorder", values)
    assert source.name == "lab_recorder"
    main = source.files["lab_recorder_main.c"]
    assert all(f'"{symbol}"' in main for symbol in symbols)
    for family, header in HEADERS.items():
        assert (header in source.files) == (mechanism.partition("-")[0] == family)


def test_the_reader_takes_as_much_as_the_module_reports() -> None:
    assert number("recorder/places.h", "RECORDER_PLACES_MAX") == MOST_PLACES
    assert number("recorder/places.c", "RECORDER_SITES_MAX") == MOST_SITES


def test_some_events_are_chosen_and_numbered_anew() -> None:
    assert recorder_values("djprobe", "x86_64", ["process_fork", "file_read"]) == {
        "mechanism": "djprobe",
        "events": ("process_fork", "file_read"),
        "calls": 0,
        "symbols": ("wake_up_new_task", "vfs_read"),
        "events_of": (0, 1),
    }


def test_the_function_of_an_event_is_the_one_that_the_kernel_has() -> None:
    def closing(*functions: str) -> Value:
        symbols = [Symbol(0xC1000000 + 16 * place, "T", name) for place, name in enumerate(functions)]
        code = KernelCode(symbols, b"", 4, (), {})
        return recorder_values("kprobe", "i386", ["file_close"], code)["symbols"]

    assert closing("close_fd") == ("close_fd",)
    assert closing("close_fd", "file_close_fd") == ("file_close_fd",)
    assert closing("vfs_read") == ("file_close_fd",)


@pytest.mark.parametrize(
    ("events", "reason"),
    [
        (["file_raed"], "did you mean 'file_read'"),
        ([], "one event at least"),
        (["file_read", "file_read"], "each once"),
    ],
)
def test_events_that_cannot_be_chosen_are_refused(events: list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        recorder_values("kprobe", "i386", events)


@pytest.mark.parametrize("version", ["6.1", "6.12", "7.3"])
def test_every_marker_of_an_event_is_in_the_kernel_s_patch(version: str) -> None:
    names = kernel(f"lab-i386-up-markers@{version}").patch_files
    patch = "".join((data_dir("images") / "patches" / f"{name}.patch").read_text() for name in names)
    placed = set(re.findall(r"^\+\s+KERNEL_MARK\((\w+), ", patch, re.MULTILINE))
    assert {event.marker for event in standard_events().values()} <= placed
    assert len(placed) == 14


def test_kernels_with_markers_are_built_with_the_modules_own_files() -> None:
    marked = [spec for name, spec in kernels().items() if name.partition("@")[0].endswith("-markers")]
    assert len(marked) == 12
    for spec in marked:
        assert spec.patches == ["markers"]
        assert "markers" in spec.fragments
        assert ("preempt" in spec.fragments) == ("-preempt-" in spec.name)
        shared = {"kmods/lib/ktext.c", "kmods/lib/ktext.h", "kmods/marker/marker.c", "kmods/marker/marker.h"}
        assert shared <= set(spec.files.values())
    assert all(data_file(name).is_file() for spec in kernels().values() for name in spec.files.values())


@pytest.mark.parametrize("bad", [("a b",), (1 << 40,), ("x",) * 2000, ('"; evil',), (True,), (("nested",),)])
def test_a_value_that_is_a_tuple_is_checked_element_by_element(bad: tuple[str, ...]) -> None:
    with pytest.raises(UsageError, match="value symbols"):
        render("recorder", {**recorder_values("kprobe", "i386"), "symbols": bad})
